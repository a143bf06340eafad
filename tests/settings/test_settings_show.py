from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from embedkit.settings import (
    EmbeddingSettings,
    ProviderDefaults,
    ProviderSettings,
    RepositorySettings,
    Settings,
    TenantSettings,
    load_settings,
)
from embedkit.surfaces.settings_command import render, render_json

TEXT = """version = 1
[providers.defaults]
timeout = 60
[providers.box]
kind = "ollama"
model = "m:latest"
[providers.slow]
kind = "codex"
timeout = "x"
[models."m:latest"]
timeout = 9.5
[[tenants]]
name = "t"
repositories = [
  { name = "r", git = "https://user:hunter2@h/x.git" },
]
"""


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    (tmp_path / "embedkit.toml").write_text(TEXT)
    monkeypatch.chdir(tmp_path)
    return load_settings(warn=lambda message: None)


def lines(settings: Settings) -> dict[str, tuple[str, str]]:
    found = [re.fullmatch(r"(.+?) = (.+?) +# (.+)", line) for line in render(settings).splitlines()]
    return {match[1]: (match[2], match[3]) for match in found if match}


def test_each_key_has_its_value_and_where_it_came_from(settings: Settings) -> None:
    shown = lines(settings)
    assert shown["version"] == ("1", "embedkit.toml:1")
    assert shown["providers.defaults.timeout"] == ("60.0", "embedkit.toml:3")
    assert shown["providers.box.timeout"] == ("9.5", 'models."m:latest".timeout (embedkit.toml:11)')
    assert shown["providers.slow.timeout"] == ("60.0", "providers.defaults.timeout (embedkit.toml:3)")
    assert shown["providers.local.timeout"] == ("60.0", "providers.defaults.timeout (embedkit.toml:3)")
    assert shown["providers.box.base_url"] == ('"http://127.0.0.1:11434"', "default")
    assert shown["providers.box.num_ctx"] == ("(not set)", "default")
    assert shown["embedding.batch"] == ("128", "default")
    assert shown["tenants[0].repositories[0].git"] == ('"https://***@h/x.git"', "embedkit.toml:15")
    assert shown["tenants[0].repositories[0].cadence"] == ("1800.0", "sweep.cadence (default)")
    assert "hunter2" not in render(settings) + render_json(settings) + repr(settings)


def test_a_table_is_aligned(settings: Settings) -> None:
    for group in render(settings).split("\n\n"):
        assert len({line.index("   # ") for line in group.splitlines() if " = " in line}) <= 1


def test_json_has_the_same_values_and_origins(settings: Settings) -> None:
    document = json.loads(render_json(settings))
    shown = lines(settings)
    assert document["origins"] == {key: origin for key, (_value, origin) in shown.items()}
    assert document["settings"]["providers"]["box"]["timeout"] == 9.5
    assert document["settings"]["tenants"][0]["repositories"][0]["name"] == "r"
    assert "path" not in document["settings"]["tenants"][0]["repositories"][0]


def test_what_is_made_in_code_says_so() -> None:
    settings = Settings(
        providers={"box": ProviderSettings(kind="ollama", model="m", capacity=2)},
        embedding=EmbeddingSettings(provider="box"),
        provider_defaults=ProviderDefaults(timeout=4),
        tenants=[TenantSettings(name="t", repositories=[RepositorySettings(name="r", path=Path("x"))])],
    )
    shown = lines(settings)
    assert shown["providers.box.capacity"] == ("2", "code")
    assert shown["providers.box.base_url"] == ('"http://127.0.0.1:11434"', "default")
    assert shown["providers.box.timeout"] == ("4.0", "providers.defaults.timeout")
    assert "providers.local.kind" not in shown
    assert render(settings).startswith("# settings made in code\n")


def test_the_command_lines_overrides_are_shown_as_such(settings: Settings) -> None:
    shown = lines(settings.overridden(provider="box", store=Path("/s")))
    assert shown["embedding.provider"] == ('"box"', "--provider")
    assert shown["embedding.batch"] == ("5", "default")
    assert shown["store.path"] == ('"/s"', "--store")


def test_without_a_file_the_defaults_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = load_settings()
    assert render(settings).startswith("# no settings file: defaults\n")
    assert {origin for _value, origin in lines(settings).values()} == {
        "default",
        "the default of kind local",
    }
