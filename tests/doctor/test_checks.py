"""What each check finds, for settings that can and cannot work."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import trio
from fakes import until
from trio.testing import MockClock, wait_all_tasks_blocked

from embedkit.doctor import CHECKS, Finding, Subject, examine
from embedkit.doctor.extras import EXTRAS, check_extras
from embedkit.doctor.folders import check_folders
from embedkit.doctor.keys import check_keys
from embedkit.doctor.programs import check_programs
from embedkit.settings import (
    AskSettings,
    ProviderSettings,
    RepositorySettings,
    Settings,
    StoreSettings,
    TenantSettings,
)

ROOT = Path(__file__).parents[2]


def subject(environ: Mapping[str, str] | None = None, **settings: Any) -> Subject:
    return Subject(Settings(**settings), environ or {})


def program(folder: Path, name: str, body: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


def said(findings: Any) -> list[tuple[str, str]]:
    return [(finding.state, finding.message) for finding in findings]


async def test_a_key_is_set_or_not_and_its_value_is_nowhere() -> None:
    providers = {
        "grok": ProviderSettings(kind="grok", model="g"),
        "router": ProviderSettings(kind="openrouter", headers={"X-Team": "${TEAM}"}),
        "box": ProviderSettings(kind="ollama", model="m"),
    }
    found = await check_keys(subject({"XAI_API_KEY": "secret", "OPENROUTER_API_KEY": "secret"}, providers=providers))
    assert [finding.state for finding in found] == ["ok", "error", "ok"]
    assert "XAI_API_KEY is set" in found[0].message
    assert "TEAM" in found[1].message
    assert "secret" not in repr(found)


async def test_programs_say_their_version_and_see_no_key(tmp_path: Path) -> None:
    program(tmp_path, "codex", 'echo "codex-cli 1.2.3 ${OPENAI_API_KEY}"')
    program(tmp_path, "gemini", "exit 1")
    environ = {"PATH": f"{tmp_path}:/bin", "OPENAI_API_KEY": "secret"}
    found = await check_programs(subject(environ))
    assert said(found) == [
        ("ok", f"codex: codex-cli 1.2.3, {tmp_path}/codex"),
        ("ok", f"gemini: does not say its version, {tmp_path}/gemini"),
    ]


async def test_a_program_that_a_provider_needs_is_not_there(tmp_path: Path) -> None:
    providers = {"cx": ProviderSettings(kind="codex")}
    found = await check_programs(subject({"PATH": str(tmp_path)}, providers=providers))
    assert [finding.state for finding in found] == ["error", "note"]
    assert found[0].message == "provider cx: no program codex is on PATH; install it"


async def test_a_program_that_hangs_is_ended(tmp_path: Path, mock_clock: MockClock) -> None:
    program(tmp_path, "codex", f"touch {tmp_path}/ready; exec sleep 1000")

    async def pass_time() -> None:
        await until((tmp_path / "ready").exists)
        await wait_all_tasks_blocked(0.05)
        mock_clock.jump(5.0)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(pass_time)
        found = await check_programs(subject({"PATH": f"{tmp_path}:/bin:/usr/bin"}))
    assert "does not say its version within 5 s" in found[0].message


async def test_folders_that_are_there_or_not(tmp_path: Path) -> None:
    (tmp_path / "repo").mkdir()
    tenants = TenantSettings(
        name="acme",
        repositories=(
            RepositorySettings(name="there", path=tmp_path / "repo"),
            RepositorySettings(name="gone", path=tmp_path / "gone"),
            RepositorySettings(name="remote", git="https://example.org/x.git"),
        ),
    )
    providers = {"box": ProviderSettings(kind="ollama", model="m", ca_file=tmp_path / "none.pem")}
    found = await check_folders(
        subject(
            tenants=(tenants,),
            providers=providers,
            store=StoreSettings(path=tmp_path / "deep" / "down" / "kb.sqlite3"),
            ask=AskSettings(log=tmp_path),
        )
    )
    assert [(finding.check, finding.state) for finding in found] == [
        ("store", "note"),
        ("log", "error"),
        ("folder", "ok"),
        ("folder", "error"),
        ("certificate", "error"),
    ]
    assert not (tmp_path / "deep").exists()


async def test_a_store_below_a_file_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    found = await check_folders(subject(store=StoreSettings(path=tmp_path / "file" / "kb.sqlite3")))
    assert [finding.state for finding in found] == ["error"]


async def test_an_extra_that_is_needed_and_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    from embedkit.doctor import extras

    monkeypatch.setattr(extras, "_version", lambda package: None if package in ("dulwich", "watchfiles") else "1.0")
    tenant = TenantSettings(name="a", repositories=(RepositorySettings(name="r", git="https://example.org/r.git"),))
    found = {finding.message.split(":")[0]: finding for finding in await check_extras(subject(tenants=(tenant,)))}
    assert {name: finding.state for name, finding in found.items()} == {
        "local": "ok",
        "git": "error",
        "watch": "note",
        "mcp": "ok",
        "gateway": "ok",
    }
    assert 'pip install "trio-embedkit[git]"' in found["git"].message


def test_the_extras_are_those_of_the_package() -> None:
    described = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    bare = {extra: tuple(item.split(">")[0].split("=")[0] for item in items) for extra, items in described.items()}
    assert bare == dict(EXTRAS)


async def test_findings_stand_in_the_order_of_the_checks() -> None:
    async def slow(_: Subject) -> list[Finding]:
        for _step in range(5):
            await trio.lowlevel.checkpoint()
        return [Finding("slow", "warning", "w")]

    async def fast(_: Subject) -> list[Finding]:
        await trio.lowlevel.checkpoint()
        return [Finding("fast", "error", "e")]

    found = await examine(subject(), [slow, fast])
    assert [finding.check for finding in found.findings] == ["slow", "fast"]
    assert (found.is_well, found.as_json()["errors"], found.as_json()["warnings"]) == (False, 1, 1)
    assert len(CHECKS) == 4
