from __future__ import annotations

import pytest
from command_line import Shell
from fakes import numbered, write_tree


def test_the_shape_of_a_status(shell: Shell) -> None:
    write_tree(shell.folder / "docs", numbered(3))
    shell("sync", "docs")
    ended = shell("status", "--json")
    assert (ended.code, ended.err) == (0, "")
    status = ended.json
    promised = ["at", "age", "lanes", "probe", "access", "config", "repositories", "activity"]
    assert [key for key in status if key in promised] == promised
    (lane,) = status["lanes"]
    assert {"provider", "capacity", "in_flight", "waiting", "longest_wait", "totals"} <= set(lane)
    assert (lane["provider"], lane["in_flight"], lane["waiting"]) == ("local", 0, {})
    totals = lane["totals"]
    assert (totals["offered"], totals["succeeded"], totals["queued"], totals["in_flight"]) == (1, 1, 0, 0)
    assert status["access"] == {"ready": 1, "degraded": 0}
    assert status["config"] == {"repositories": 0, "disabled": 0, "errors": []}
    (repository,) = status["repositories"]
    assert (repository["tenant"], repository["name"], repository["outstanding"]) == ("default", "docs", 0)
    assert (repository["streak"], repository["last"]["outcome"], repository["last"]["code"]) == (0, "complete", None)
    assert set(repository["last"]["clocks"]) == {"queue_wait", "provider_time", "retry_wait"}
    assert 0 < repository["next_due_in"] <= 1800
    (row,) = status["activity"]
    assert "ingestion" in str(row)


def test_no_text_and_no_credential_stands_in_a_status(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOX_KEY", "sk-very-secret")
    text = """
version = 1
[providers.box]
kind = "openai-compatible"
base_url = "http://127.0.0.1:9/v1"
model = "m"
api_key_env = "BOX_KEY"
[[tenants]]
name = "acme"
repositories = [{ name = "docs", path = "docs" }, { name = "gone", path = "gone" },
                { name = "git", git = "https://user:hidden@example.org/x.git", enabled = false }]
"""
    write_tree(shell.folder, {"embedkit.toml": text, "docs/one.txt": "confidential words\n"})
    synced = shell("sync", "--json")
    assert synced.code == 1, synced
    for ended in (synced, shell("sync"), shell("status"), shell("status", "--json"), shell("settings")):
        for secret in ("confidential", "sk-very-secret", "hidden"):
            assert secret not in ended.out + ended.err
    assert shell("status", "--json").json["config"]["disabled"] == 1
    assert "gone" in str(shell("status", "--json").json["config"]["errors"])


def test_a_status_changes_nothing_and_calls_nobody(shell: Shell) -> None:
    write_tree(shell.folder / "docs", numbered(3))
    shell("sync", "docs")
    held = shell.store.read_bytes()
    for _ in range(2):
        assert shell("status").code == 0
    assert shell.store.read_bytes() == held


def test_the_settings_in_force_and_their_schema(shell: Shell) -> None:
    write_tree(shell.folder, {"embedkit.toml": "version = 1\n[sweep]\nconcurrency = 7\n"})
    ended = shell("settings")
    assert (ended.code, ended.err) == (0, "")
    assert "embedkit.toml:3" in ended.out
    assert shell("settings", "--json").code == 0
    assert '"$schema"' in shell("settings", "--schema").out


def test_a_provider_without_a_lane_is_not_shown_as_one(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", "g-key")
    text = """
version = 1
[providers.far]
kind = "gemini"
base_url = "http://127.0.0.1:9/v1beta"
model = "m"
[embedding]
provider = "far"
"""
    write_tree(shell.folder, {"embedkit.toml": text, "docs/one.txt": "words\n"})
    assert shell("sync", "docs").code == 3
    assert shell("status", "--json").json["lanes"] == []
    assert "  far: remote, without a lane; in flight 0\n" in shell("status").out
