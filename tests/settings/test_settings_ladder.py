from __future__ import annotations

import itertools
import math
from pathlib import Path

import pytest

from embedkit.errors import UsageError
from embedkit.settings import KINDS, ModelSettings, ProviderDefaults, ProviderSettings, Settings, load_settings

BAD = [0, -1.0, math.nan, math.inf, True, "60", 10**400, [1]]


def settings_with(model: object, provider: object, defaults: object, kind: str = "openai-compatible") -> Settings:
    needs = {"base_url": "http://127.0.0.1:1/v1", "model": "m"}
    needs = {name: needs[name] for name in KINDS[kind].needs} | {"model": "m"}
    box = ProviderSettings(kind=kind, timeout=provider, **needs)  # type: ignore[arg-type]
    return Settings(
        providers={"box": box},
        models={"m": ModelSettings(timeout=model)},  # type: ignore[arg-type]
        provider_defaults=ProviderDefaults(timeout=defaults),  # type: ignore[arg-type]
    )


RUNGS = ["the request's timeout", "models.m.timeout", "providers.box.timeout", "providers.defaults.timeout"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("given", list(itertools.product([None, "bad", "good"], repeat=4)))
def test_the_first_rung_that_is_a_limit_serves(
    kind: str, given: tuple[str | None, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    values = [
        None if state is None else -1.0 if state == "bad" else float(10 + place) for place, state in enumerate(given)
    ]
    request, model, provider, defaults = values
    settings = settings_with(model, provider, defaults, kind=kind)
    limit = settings.timeout_for("box", request)
    if "good" in given:
        place = given.index("good")
        assert (limit.seconds, limit.rung) == (10.0 + place, RUNGS[place])
    else:
        assert (limit.seconds, limit.rung) == (KINDS[kind].timeout, f"the default of kind {kind}")
    warnings = capsys.readouterr().err.splitlines()
    assert len(warnings) == given.count("bad")


@pytest.mark.parametrize("bad", BAD, ids=str)
def test_what_is_no_limit_is_dropped_with_one_line_that_names_it(
    bad: object, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = settings_with(None, bad, 7)
    assert settings.timeout_for("box").seconds == 7.0
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("warning: providers.box.timeout: ")
    warnings: list[str] = []
    assert settings.timeout_for("box", bad, warn=warnings.append).seconds == 7.0  # type: ignore[arg-type]
    assert len(warnings) == 1


def test_a_rung_of_the_file_says_its_line_and_a_dropped_one_is_told_to_the_callers_function(tmp_path: Path) -> None:
    file = tmp_path / "embedkit.toml"
    file.write_text(
        'version = 1\n[providers.defaults]\ntimeout = 60\n[providers.box]\nkind = "ollama"\nmodel = "a:b"\n'
        'timeout = "fast"\n[models."a:b"]\ntimeout = nan\n'
    )
    warnings: list[str] = []
    settings = load_settings(file, warn=warnings.append)
    assert sorted(line.partition(": ")[0] for line in warnings) == [f"{file}:7", f"{file}:9"]
    limit = settings.timeout_for("box")
    assert limit.seconds == 60.0
    assert limit.rung == f"providers.defaults.timeout ({file}:3)"
    assert settings.timeout_for("local").rung == limit.rung


def test_another_model_has_its_own_rung() -> None:
    settings = settings_with(11.0, 12.0, None)
    assert settings.timeout_for("box").seconds == 11.0
    assert settings.timeout_for("box", model="other").seconds == 12.0


def test_the_ladder_of_the_one_that_embeds_needs_no_name() -> None:
    assert Settings().timeout_for().seconds == 300.0
    assert Settings().timeout_for(request=2).seconds == 2.0
    with pytest.raises(UsageError, match='provider "nope" is not known; known: local'):
        Settings().timeout_for("nope")
