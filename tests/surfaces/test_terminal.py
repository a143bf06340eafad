from __future__ import annotations

import io
import os
import pty
from pathlib import Path

import pytest
from command_line import HashModel
from fakes import numbered, write_tree

from embedkit.clocks import Clocks
from embedkit.knowledge.indexing.tally import Tally
from embedkit.providers import local
from embedkit.surfaces.cli import main
from embedkit.surfaces.terminal import _Running, added_line, line_of, watching, watching_additions
from embedkit.sweep.progress import Progress


def one(name: str, done: int, documents: int, *, embedded: int = 0, before: int = 0, began: float = 0.0) -> _Running:
    work = Tally(documents=documents, done=done, embedded=embedded, clocks=Clocks(1.5, 0.0, 0.0))
    return _Running(Progress("default", name, work), began, before)


def test_a_line_says_done_of_total_and_then_how_fast_all_go() -> None:
    assert line_of([one("api", 0, 10)], 5.0, 79) == "api 0/10"
    running = [one("api", 5, 10, embedded=100), one("site", 1, 4, embedded=20)]
    assert line_of(running, 4.0, 79) == "api 5/10  site 1/4  30 chunks/s  queued 3.0 s  12 s left"


def test_documents_that_were_there_before_do_not_make_the_rest_look_quick() -> None:
    assert line_of([one("api", 91, 100, embedded=2, before=90)], 2.0, 79).endswith("18 s left")


@pytest.mark.parametrize("width", [20, 40, 79])
def test_a_line_fits_and_says_how_many_it_has_no_room_for(width: int) -> None:
    line = line_of([one(f"repository-{number}", 5, 10, embedded=100) for number in range(9)], 4.0, width)
    assert len(line) <= width
    if width == 79:
        assert line == "repository-0 5/10  and 8 more  225 chunks/s  queued 13.5 s  4 s left"


def test_nothing_is_drawn_where_nobody_sees_it() -> None:
    with watching(io.StringIO()) as listener:
        assert listener is None


def test_on_a_terminal_the_line_is_drawn_and_gone_in_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tree(tmp_path / "docs", numbered(30))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(local, "_load", HashModel)
    theirs, ours = pty.openpty()
    with open(ours, "w", encoding="utf-8") as terminal, open(theirs, "rb", buffering=0) as seen:
        monkeypatch.setattr("sys.stderr", terminal)
        assert main(["sync", "docs"]) == 0
        terminal.flush()
        drawn = os.read(seen.fileno(), 65536).decode()
    assert drawn.startswith("\r\x1b[Kdocs 0/30")
    assert drawn.endswith("\r\x1b[K")
    assert "\n" not in drawn


def test_what_is_added_is_counted_where_somebody_can_see_it() -> None:
    assert (
        added_line("acme/mail", 1_200, 3_400, 2.0) == "acme/mail 1,200 documents, 3,400 vectors bought  1,700 chunks/s"
    )
    assert added_line("acme/mail", 0, 0, 2.0) == "acme/mail 0 documents, 0 vectors bought"
    nobody = io.StringIO()
    with watching_additions(nobody, "acme/mail") as told:
        assert told is None
    assert nobody.getvalue() == ""
    main_end, other_end = pty.openpty()
    with os.fdopen(other_end, "w") as terminal, watching_additions(terminal, "acme/mail") as told:
        assert told is not None
        terminal.flush()
    os.close(main_end)
