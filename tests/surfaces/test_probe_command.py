from __future__ import annotations

import time
from functools import partial

import pytest
import trio
from command_line import HashModel, Shell, settings_text
from fakes import numbered, write_tree

from embedkit.activity.process import this_process
from embedkit.database import open_database
from embedkit.probing import tables as probe_tables
from embedkit.probing.rules import engine_key
from embedkit.probing.sharing import prepare
from embedkit.settings import ProviderSettings

KEYS = ["provider", "verdict", "reason", "age", "shared", "elapsed"]


def test_a_healthy_provider(shell: Shell) -> None:
    ended = shell("probe", "--json")
    assert (ended.code, ended.err) == (0, "")
    assert list(ended.json) == KEYS
    assert ended.json["elapsed"] > 0
    assert {key: ended.json[key] for key in KEYS[:5]} == {
        "provider": "local",
        "verdict": "healthy",
        "reason": None,
        "age": 0.0,
        "shared": False,
    }


def test_the_next_command_shares_the_verdict(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    shell("probe")

    def is_not_called(*_: object) -> object:
        raise AssertionError

    monkeypatch.setattr(HashModel, "embed", is_not_called)
    ended = shell("probe", "--json")
    assert (ended.code, ended.json["verdict"], ended.json["shared"]) == (0, "healthy", True)
    assert 0 < ended.json["age"] < 60
    assert shell("probe").out == "local: healthy, known for 0 s\n"


def test_real_work_is_a_healthy_probe(shell: Shell) -> None:
    write_tree(shell.folder / "docs", numbered(3))
    shell("sync", "docs")
    ended = shell("probe", "--json")
    assert (ended.code, ended.json["verdict"], ended.json["reason"]) == (0, "healthy", "real-work")


def test_a_provider_that_does_not_answer_is_degraded(shell: Shell) -> None:
    write_tree(shell.folder, {"embedkit.toml": settings_text("http://127.0.0.1:9/v1")})
    ended = shell("probe", "--json")
    assert (ended.code, ended.err) == (1, "")
    assert (ended.json["provider"], ended.json["verdict"], ended.json["reason"]) == (
        "box",
        "degraded",
        "KB_VECTOR_EMBED_CONNECTION_REFUSED",
    )
    assert shell("probe").out == "box: degraded (KB_VECTOR_EMBED_CONNECTION_REFUSED), known for 0 s\n"


def test_another_provider_than_the_one_that_embeds(shell: Shell) -> None:
    write_tree(shell.folder, {"embedkit.toml": settings_text("http://127.0.0.1:9/v1")})
    ended = shell("probe", "local", "--json")
    assert (ended.code, ended.json["provider"], ended.json["verdict"]) == (0, "local", "healthy")


def test_what_may_not_be_asked_and_was_never_known_is_unknown(shell: Shell) -> None:
    trio.run(_spend_the_budget, shell)
    ended = shell("probe", "--json")
    assert (ended.code, ended.json["verdict"], ended.json["reason"]) == (3, "unknown", "over-budget")
    assert (ended.json["age"], ended.json["shared"]) == (None, True)


async def _spend_the_budget(shell: Shell) -> None:
    """A call was made a moment ago, and cut off."""
    engine, writer, now = (
        engine_key(ProviderSettings(kind="local")),
        probe_tables.Writer("x", this_process()),
        time.time(),
    )
    async with open_database(shell.store) as database:
        await prepare(database)
        await database.write(partial(probe_tables.land, engine, writer, now, None, now))


def test_an_unknown_provider_is_a_usage_error(shell: Shell) -> None:
    ended = shell("probe", "bax")
    assert ended.code == 2
    ended.check_one_line("bax", "local")
    assert shell("probe", "bax", "--json").json["error"]["kind"] == "usage"


def test_status_shows_the_verdict_and_starts_none(shell: Shell) -> None:
    write_tree(shell.folder / "docs", numbered(3))
    shell("sync", "docs")
    assert shell("status", "--json").json["probe"]["reason"] == "real-work"
    shell("probe", "--store", "other.sqlite3")
    probe = shell("status", "--json", "--store", "other.sqlite3").json["probe"]
    assert list(probe) == KEYS
    assert (probe["provider"], probe["verdict"], probe["reason"], probe["shared"]) == ("local", "healthy", None, True)
    assert "probe: local: healthy, known for 0 s" in shell("status", "--store", "other.sqlite3").out


def test_status_of_a_store_that_nobody_probed(shell: Shell) -> None:
    write_tree(shell.folder, {"docs/one.txt": "one\n", "embedkit.toml": settings_text("http://127.0.0.1:9/v1")})
    shell("sync", "docs")
    assert shell("status", "--json").json["probe"] is None
    assert "probe: nobody has asked yet" in shell("status").out
