from __future__ import annotations

import pytest
from command_line import Shell

from embedkit.testing import ScriptedEngine, open_scripted_engine


def test_without_settings(shell: Shell) -> None:
    ended = shell("doctor")
    assert (ended.code, ended.err) == (0, "")
    assert "no embedkit.toml: defaults" in ended.out
    assert not (shell.folder / ".embedkit").exists()


def test_a_broken_file_is_one_finding_among_others(shell: Shell) -> None:
    (shell.folder / "embedkit.toml").write_text("version = 1\n[providers.box]\nkind = 'odd'\n")
    ended = shell("doctor", "--json")
    assert ended.code == 1
    assert (ended.json["ok"], ended.json["errors"]) == (False, 1)
    first, *others = ended.json["findings"]
    assert first["state"] == "error"
    assert "embedkit.toml:3" in first["message"]
    assert {"store", "extra"} <= {finding["check"] for finding in others}


def test_a_timeout_that_was_dropped_is_a_warning(shell: Shell) -> None:
    (shell.folder / "embedkit.toml").write_text(
        "version = 1\n[providers.box]\nkind = 'ollama'\nmodel = 'm'\ntimeout = -3\n"
    )
    ended = shell("doctor", "--json")
    assert (ended.code, ended.err, ended.json["warnings"]) == (0, "", 1)


def test_a_key_that_is_unset_and_one_that_is_set(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XAI_API_KEY", raising=False)
    (shell.folder / "embedkit.toml").write_text("version = 1\n[providers.g]\nkind = 'grok'\nmodel = 'm'\n")
    assert shell("doctor").code == 1
    monkeypatch.setenv("XAI_API_KEY", "xai-secret")
    ended = shell("doctor", "--json")
    assert ended.code == 0
    assert "secret" not in ended.out


async def _requests(served: ScriptedEngine, shell: Shell) -> int:
    import trio

    text = f"version = 1\n[providers.box]\nkind = 'openai-compatible'\nbase_url = '{served.openai_url}'\nmodel = 'm'\n"
    (shell.folder / "embedkit.toml").write_text(text)
    assert (await trio.to_thread.run_sync(shell, "doctor")).code == 0
    return served.log.connections


async def test_no_provider_is_called(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    from contextlib import asynccontextmanager

    from embedkit.surfaces import doctor_command
    from embedkit.surfaces.interrupts import Interrupt

    @asynccontextmanager
    async def no_signals():  # type: ignore[no-untyped-def]
        yield Interrupt()

    monkeypatch.setattr(doctor_command, "interruptible", no_signals)  # signals are the main thread's
    async with open_scripted_engine() as served:
        assert await _requests(served, shell) == 0
