"""The command line as a whole: what there is, which version, and what is refused."""

from __future__ import annotations

import runpy
import sys

import pytest
from command_line import Shell

import embedkit


def test_bare_it_shows_what_there_is(shell: Shell) -> None:
    ended = shell()
    assert (ended.code, ended.err) == (0, "")
    for command in ("sync", "search", "status", "settings"):
        assert f"    {command}" in ended.out


def test_which_version(shell: Shell) -> None:
    assert shell("--version").out == f"embedkit {embedkit.__version__}\n"
    assert shell("--version", "--json").json == {"version": embedkit.__version__}


@pytest.mark.parametrize("arguments", [("search", "x", "--repo", "a"), ("sync", "--inc", "x"), ("--vers",), ("--js",)])
def test_an_abbreviation_is_refused(shell: Shell, arguments: tuple[str, ...]) -> None:
    ended = shell(*arguments)
    assert ended.code == 2
    assert arguments[-2 if len(arguments) > 1 else -1] in ended.err or "unrecognized" in ended.err


def test_it_runs_as_a_module(shell: Shell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["embedkit", "--version"])
    with pytest.raises(SystemExit) as left:
        runpy.run_module("embedkit", run_name="__main__")
    assert left.value.code == 0
    assert capsys.readouterr().out == f"embedkit {embedkit.__version__}\n"
