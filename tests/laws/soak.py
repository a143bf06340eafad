"""A million random schedules, in portions: ``python -m tests.laws.soak --portion 20000``.

Each is a ``mixture`` on a lane of ours: one kind, then the other. What has been played stands in ``build/soak.json``,
so the next portion goes on where the last one stopped; a change to the heart or to the checker begins anew, since the
schedules that were played say nothing about it. A schedule that finds something is kept there with what it found.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import attrs

sys.path.insert(0, str(Path(__file__).parent))

import hypothesis  # noqa: F401  # it makes trio shuffle the tasks of a step
from our_lanes import SETTLEMENTS, maker

from embedkit.testing.laws.mixture import mixture
from embedkit.testing.production import play

ROOT = Path(__file__).parents[2]
WHOLE = 1_000_000
STATE = ROOT / "build" / "soak.json"
_JUDGED = ("embedkit/admission", "embedkit/testing")
_METHODS = (frozenset[str](), frozenset({"run_nowait"}), frozenset({"run_nowait", "refresh"}))


@attrs.define
class State:
    """What has been played.

    Attributes:
        source: Of which source: a digest.
        played: Schedules played; the next one has this number.
        found: Those that found something, with what it was.
    """

    source: str
    played: int = 0
    found: dict[str, str] = attrs.field(factory=dict)


def digest(folders: Iterable[str] = _JUDGED) -> str:
    """Of the source that the schedules say something about."""
    found = hashlib.sha256()
    for folder in folders:
        for file in sorted((ROOT / folder).rglob("*.py")):
            found.update(file.relative_to(ROOT).as_posix().encode())
            found.update(file.read_bytes())
    return found.hexdigest()[:16]


def load(path: Path = STATE) -> State:
    """Where the last portion stopped, if it was of this source."""
    source = digest()
    if path.exists():
        state = State(**json.loads(path.read_text(encoding="utf-8")))
        if state.source == source:
            return state
    return State(source)


def save(state: State, path: Path = STATE) -> None:
    """For the next portion. Written whole: an interrupt leaves the old one."""
    path.parent.mkdir(exist_ok=True)
    beside = path.with_suffix(".new")
    beside.write_text(json.dumps(attrs.asdict(state), indent=1), encoding="utf-8")
    beside.replace(path)


def play_schedule(number: int) -> str | None:
    """What schedule ``number`` found."""
    settlement = SETTLEMENTS[number % 2]
    calls = _METHODS[number // 2 % len(_METHODS)]
    verdict = play(mixture(number, calls=calls), maker(settlement), settlement, number)  # type: ignore[arg-type]
    return None if verdict.is_kept else f"{settlement}: {verdict}"


def play_portion(state: State, count: int, *, seconds: float, path: Path = STATE) -> State:
    """Play up to ``count`` more, for so long at most; what was played is saved as it goes, whatever ends it."""
    ends_at = time.perf_counter() + seconds
    try:
        for _ in range(min(count, WHOLE - state.played)):
            found = play_schedule(state.played)
            if found is not None:
                state.found[str(state.played)] = found
            state.played += 1
            if state.played % 500 == 0:
                save(state, path)
            if time.perf_counter() > ends_at:
                break
    finally:
        save(state, path)
    return state


def main(arguments: list[str] | None = None) -> int:
    """Play a portion and say how far it has come. The number of schedules that found something."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--portion", type=int, default=20_000, help="how many schedules (20,000)")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="for how long at most")
    options = parser.parse_args(arguments)
    logging.disable()
    state = play_portion(load(), options.portion, seconds=options.seconds)
    print(f"{state.played:,} of {WHOLE:,} schedules played (source {state.source}), {len(state.found)} found something")  # noqa: T201
    for number, found in list(state.found.items())[:5]:
        print(f"schedule {number}: {found}")  # noqa: T201
    return len(state.found)


if __name__ == "__main__":
    sys.exit(main())
