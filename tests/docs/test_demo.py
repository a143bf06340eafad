"""The demo, on a small tree: what it prints, and that it leaves nothing behind."""

from __future__ import annotations

import os
import re
import tempfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from benchmarks.demo import main_job

pytestmark = pytest.mark.skipif(find_spec("wordllama") is None, reason="the demo uses the embedded model")


@pytest.fixture
def library(tmp_path: Path) -> Path:
    root = tmp_path / "somewhere"
    for name, text in (
        ("json/tool.py", '"""Reads and writes JSON."""\n\n\ndef main():\n    """Run it."""\n'),
        ("email/utils.py", 'def parse_date(text):\n    """Parse a date from a string."""\n    return text\n'),
        ("test/test_it.py", "assert True\n"),
    ):
        (root / name).parent.mkdir(parents=True)
        (root / name).write_text(text, "utf-8")
    return root


def test_the_demo_shows_the_main_job_and_leaves_nothing(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    before = {path: path.read_bytes() for path in library.rglob("*") if path.is_file()}
    here = Path.cwd()

    assert main_job(library) == 0

    printed = capsys.readouterr().out
    assert len(printed.splitlines()) <= 40
    assert "2 documents, 2 chunks; 2 vectors bought" in printed
    assert re.search(r"library/email/utils.py:1 +def parse_date\(text\):", printed)
    assert re.search(r"one more function +1 embedded +\d+ reused +1 call ", printed)
    assert re.search(r"called post/ now +0 embedded +1 reused +0 calls ", printed)
    assert re.search(r"nothing changed +0 embedded +0 reused +0 calls ", printed)
    assert {path: path.read_bytes() for path in library.rglob("*") if path.is_file()} == before
    assert os.listdir(scratch) == []
    assert Path.cwd() == here


def test_the_demo_stops_at_a_command_that_fails(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.demo.embedkit", lambda words: 130)
    assert main_job(library) == 130
