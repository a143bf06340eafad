"""``embedkit add``: JSON lines on standard input; a bad line is named, and loses nothing."""

from __future__ import annotations

import io
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from command_line import Ended, Shell, in_a_process
from fakes import write_tree
from hypothesis import given
from hypothesis import strategies as st

from embedkit.surfaces import json_lines
from embedkit.surfaces.json_lines import read_lines


def lines(*documents: object) -> bytes:
    return b"".join(item if isinstance(item, bytes) else json.dumps(item).encode() + b"\n" for item in documents)


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch, shell: Shell):  # type: ignore[no-untyped-def]
    def piped(data: bytes, *arguments: str) -> Ended:
        stream = SimpleNamespace(buffer=io.BytesIO(data), isatty=lambda: False)
        monkeypatch.setattr("sys.stdin", stream)
        return shell("add", *arguments)

    return piped


APPLES = {"path": "a", "text": "green apples", "metadata": {"by": "ann", "year": 2020}}
PEARS = {"path": "b", "text": "ripe pears"}


def test_lines_become_documents_and_are_found(shell: Shell, pipe) -> None:  # type: ignore[no-untyped-def]
    ended = pipe(lines(APPLES, b"\n", PEARS), "--tenant", "acme", "--repository", "mail")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out == "acme/mail: 2 documents added, 2 chunks stored; 2 vectors bought\n"
    (hit,) = shell("search", "apples", "--mode", "text", "--json").json["hits"]
    assert (hit["tenant"], hit["repository"], hit["path"], hit["metadata"]) == (
        "acme",
        "mail",
        "a",
        APPLES["metadata"],
    )
    for value, count in (("by=ann", 1), ("year=2020", 1), ('year="2020"', 0), ("by=bob", 0)):
        assert len(shell("search", "apples pears", "--metadata", value, "--json").json["hits"]) == count
    assert '{"by": "ann", "year": 2020}' in shell("search", "apples", "--metadata", "by=ann").out
    shell("search", "x", "--metadata", "by").check_one_line("KEY=VALUE")
    (record,) = shell("status", "--json").json["repositories"]
    assert (record["named"], record["last"]["outcome"]) == (True, "complete")


def test_bad_lines_are_named_and_lose_nothing(shell: Shell, pipe) -> None:  # type: ignore[no-untyped-def]
    pipe(lines({"path": "old", "text": "old"}), "--repository", "mail")
    bad = [
        b"{\n", b"[1]\n", b"\xff\n", b'{"path": "c"}\n', b'{"path": "c", "text": 3}\n',
        b'{"path": "c", "text": "x", "colour": 1}\n', b'{"path": "", "text": "x"}\n',
        b'{"path": "c", "text": "\\ud800"}\n',
        b'{"path": "c", "text": "x", "metadata": {"a": NaN}}\n', b'{"path": "c", "text": "x", "metadata": 3}\n',
        b"[" * 100_000 + b"\n", b'{"path": 1e999, "text": "x"}\n',
        b'{"path": "c", "text": "x", "metadata": {"a": 1e999}}\n',
        b"1" * 5000 + b"\n",
    ]  # fmt: skip
    ended = pipe(lines(APPLES, *bad, PEARS), "--repository", "mail", "--complete", "--json")
    assert ended.code == 1
    told = ended.err.splitlines()
    assert [line.split(":")[1].strip() for line in told] == [f"line {number}" for number in range(2, len(bad) + 2)]
    assert all(len(line) < 250 for line in told)
    assert (ended.json["documents"], ended.json["bad_lines"], ended.json["deleted"]) == (2, len(bad), 0)
    assert {hit["path"] for hit in shell("search", "old apples pears", "--json").json["hits"]} == {"old", "a", "b"}
    good = pipe(lines(APPLES), "--repository", "mail", "--complete", "--json")
    assert (good.code, good.json["deleted"], good.json["chunks"]) == (0, 2, 1)


def test_nothing_given_removes_nothing(shell: Shell, pipe) -> None:  # type: ignore[no-untyped-def]
    pipe(lines(APPLES), "--repository", "mail")
    ended = pipe(b"", "--repository", "mail", "--complete")
    assert ended.code == 1
    ended.check_one_line("--allow-empty")
    assert pipe(b"", "--repository", "mail", "--complete", "--allow-empty", "--json").json["deleted"] == 1


def test_a_folder_of_the_same_name_gets_another(shell: Shell, pipe) -> None:  # type: ignore[no-untyped-def]
    write_tree(shell.folder, {"mail/x.txt": "a file\n"})
    pipe(lines(APPLES), "--repository", "mail")
    (report,) = shell("sync", "mail", "--json").json["repositories"]
    assert (report["outcome"], report["name"] != "mail") == ("complete", True)
    assert len(shell("search", "apples file", "--json").json["hits"]) == 2
    ended = pipe(lines(PEARS), "--repository", report["name"])
    assert ended.code == 2
    ended.check_one_line("holds the files of")


def test_a_line_without_end_is_read_past(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_lines, "MOST_BYTES", 64)
    got = read_lines(io.BytesIO(lines(b"x" * 1000 + b"\n", PEARS, b"y" * 1000)), 1)
    assert [document.path for document in got.documents] == ["b"]
    assert [line.split(":")[0] for line in got.bad] == ["line 1", "line 3"]


@given(st.lists(st.binary(max_size=40)))
def test_any_bytes_are_documents_or_bad_lines(some: list[bytes]) -> None:
    data = b"\n".join(some)
    got = read_lines(io.BytesIO(data), 1)
    full = [line for line in data.split(b"\n") if line.strip()]
    assert len(got.documents) + len(got.bad) == len(full)


def test_it_reads_a_pipe(tmp_path: Path) -> None:
    ended = in_a_process(tmp_path, "add", "--repository", "mail", "--json", input=lines(APPLES, PEARS))
    if "extra" not in ended.err:  # the embedded model is not installed everywhere
        assert (ended.code, ended.json["documents"]) == (0, 2)
