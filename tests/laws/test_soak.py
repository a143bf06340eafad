"""The soak: portions go on where they stopped, a change of source begins anew, and what is found is kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import soak


def test_a_portion_goes_on_where_the_last_one_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played: list[int] = []

    def play_schedule(number: int) -> str | None:
        played.append(number)
        return "something" if number == 3 else None

    monkeypatch.setattr(soak, "play_schedule", play_schedule)
    path = tmp_path / "build" / "soak.json"
    for _ in range(2):
        soak.play_portion(soak.load(path), 5, seconds=60.0, path=path)
    assert played == list(range(10))
    state = soak.load(path)
    assert (state.played, state.found) == (10, {"3": "something"})
    monkeypatch.setattr(soak, "WHOLE", 12)
    assert soak.play_portion(state, 5, seconds=60.0, path=path).played == 12


def test_an_interrupt_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def play_schedule(number: int) -> str | None:
        if number == 7:
            raise KeyboardInterrupt
        return None

    monkeypatch.setattr(soak, "play_schedule", play_schedule)
    path = tmp_path / "soak.json"
    with pytest.raises(KeyboardInterrupt):
        soak.play_portion(soak.load(path), 100, seconds=60.0, path=path)
    assert soak.load(path).played == 7


def test_a_change_of_source_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "soak.json"
    soak.save(soak.State("another source", 5_000), path)
    assert soak.load(path) == soak.State(soak.digest())
    soak.save(soak.State(soak.digest(), 5_000), path)
    assert soak.load(path).played == 5_000
    assert set(json.loads(path.read_text(encoding="utf-8"))) == {"source", "played", "found"}


def test_the_first_schedules_find_nothing() -> None:
    assert [found for number in range(30) if (found := soak.play_schedule(number)) is not None] == []


@pytest.mark.soak
def test_a_portion_of_a_million(capsys: pytest.CaptureFixture[str]) -> None:
    assert soak.main(["--portion", "20000", "--seconds", "1800"]) == 0, capsys.readouterr().out
