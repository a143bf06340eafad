from __future__ import annotations

import io
import sys
import threading
from collections.abc import Iterator
from queue import SimpleQueue

import pytest
import trio
from command_line import Shell
from fakes import write_tree

from embedkit.testing import Rule, open_scripted_engine
from embedkit.testing.engine_rules import containing, status


@pytest.fixture
def served() -> Iterator[str]:
    """An engine in a thread of its own, since the command runs its own loop; its address."""
    ready: SimpleQueue[tuple[str, trio.lowlevel.TrioToken, trio.CancelScope]] = SimpleQueue()

    async def serve() -> None:
        rules = [Rule(containing("break"), status(401))]
        async with open_scripted_engine(rules=rules, says=lambda _: "Right.\x1b[2J\nVERDICT: APPROVE") as engine:
            with trio.CancelScope() as scope:
                ready.put((engine.base_url, trio.lowlevel.current_trio_token(), scope))
                await trio.sleep_forever()

    thread = threading.Thread(target=trio.run, args=(serve,))
    thread.start()
    address, token, scope = ready.get()
    yield address
    token.run_sync_soon(scope.cancel)
    thread.join()


@pytest.fixture
def asked(shell: Shell, served: str) -> Shell:
    text = f"""
version = 1
[providers.box]
kind = "openai-compatible"
base_url = "{served}/v1"
model = "scripted"
[providers.llama]
kind = "ollama"
base_url = "{served}"
model = "scripted"
[[ask.panel]]
provider = "box"
[[ask.panel]]
provider = "llama"
alias = "other"
[[ask.panel]]
provider = "box"
alias = "third"
[ask]
max_fanout = 2
log = "debug.jsonl"
[consensus]
arbiter = "box"
"""
    # TOML wants the table before its arrays.
    tables, _, rest = text.partition("[[ask.panel]]")
    ask, _, consensus = rest.partition("[ask]\n")
    settings, _, judged = consensus.partition("[consensus]")
    write_tree(shell.folder, {"embedkit.toml": f"{tables}[ask]\n{settings}[[ask.panel]]{ask}[consensus]{judged}"})
    return shell


def test_answers_and_a_table(asked: Shell) -> None:
    ended = asked("ask", "Is it fair?")
    assert (ended.code, ended.err) == (0, "")
    assert "== other (scripted), " in ended.out
    assert "Right. [2J\nVERDICT: APPROVE" in ended.out
    table = ended.out[ended.out.index("member") :].splitlines()
    assert [line.split()[:2] for line in table] == [
        ["member", "result"],
        ["box", "answer"],
        ["other", "answer"],
        ["omitted", "(ask.max_fanout):"],
    ]


def test_json_is_one_document(asked: Shell) -> None:
    ended = asked("ask", "Is it fair?", "--to", "third", "--to", "llama", "--json")
    assert ended.code == 0
    assert list(ended.json) == ["results", "omitted", "unavailable"]
    assert [result["alias"] for result in ended.json["results"]] == ["third", "llama"]
    assert ended.json["results"][0]["ok"] is True


def test_a_failure_is_a_result_and_exit_1(asked: Shell) -> None:
    ended = asked("ask", "break it", "--json")
    assert (ended.code, ended.err) == (1, "")
    assert {result["kind"] for result in ended.json["results"]} == {"auth"}
    ended = asked("ask", "break it")
    assert (ended.code, "== box (scripted): auth" in ended.out) == (1, True)


def test_a_question_from_standard_input(asked: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("Is it fair?\n"))
    assert asked("ask").code == 0
    monkeypatch.setattr(sys, "stdin", io.StringIO(" \n"))
    ended = asked("ask")
    assert ended.code == 2
    ended.check_one_line("no question")


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["ask", "q", "--to", "nobody"], "nobody called 'nobody'"),
        (["ask", "q", "--timeout", "0"], "positive number"),
        (["ask", "q", "--deadline", "soon"], "positive number"),
        (["consensus", "q", "--arbiter", "nobody"], "nobody called 'nobody'"),
        (["analyze", "nowhere.jsonl"], "nowhere.jsonl"),
    ],
)
def test_what_cannot_be_is_one_line(asked: Shell, arguments: list[str], part: str) -> None:
    ended = asked(*arguments)
    assert ended.code == 2
    ended.check_one_line(part)


def test_panel_sends_nothing(asked: Shell) -> None:
    ended = asked("panel")
    assert (ended.code, ended.out) == (0, "box: asked\nother: asked\nthird: omitted (ask.max_fanout)\n")
    assert asked("panel", "--json").json["omitted"] == ["third"]
    assert not (asked.folder / "debug.jsonl").exists()


def test_consensus(asked: Shell) -> None:
    ended = asked("consensus", "The plan.")
    assert (ended.code, ended.err) == (0, "")
    first, last = ended.out.splitlines()
    assert first == "round 1: other APPROVE, third APPROVE; arbiter APPROVE"
    assert last.startswith("consensus: converged, confidence high, after ")
    document = asked("consensus", "The plan.", "--json").json
    assert (document["status"], len(document["rounds"])) == ("converged", 1)
    ended = asked("consensus", "break it", "--max-rounds", "1")
    assert ended.code == 1
    assert ended.out.startswith("round 1: other failed (auth), third failed (auth); arbiter failed (auth)\n")


def test_analyze(asked: Shell) -> None:
    asked("ask", "Is it fair?")
    asked("ask", "break it")
    rows = asked("analyze", "--json").json["models"]
    assert [(row["provider"], row["calls"], row["failures"]) for row in rows] == [
        ("box", 2, {"auth": 1}),
        ("llama", 2, {"auth": 1}),
    ]
    out = asked("analyze", "debug.jsonl").out
    assert "box/scripted" in out
    assert "50%" in out
