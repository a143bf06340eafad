"""Patterns over foreign text: each repetition is bounded, so that the time is linear in what is read of a reply.

An engine's reply, its headers, and names from the other side are read on the event loop.
"""

from __future__ import annotations

import importlib
import pkgutil
import random
import re
import re._constants as opcodes  # type: ignore[import-not-found]  # typeshed leaves them out
import re._parser as parser  # type: ignore[import-not-found]
import time
from collections.abc import Iterator
from typing import Any

import pytest

import embedkit.providers
from embedkit.providers.engine_table import PHRASES
from embedkit.providers.engine_words import words_of

# The longest that a single repetition may span: a key in a header.
_LONGEST = 2_000
_REPEATS = {opcodes.MAX_REPEAT, opcodes.MIN_REPEAT}
# A single class, taken to its end, and nothing behind it that can fail.
_LINEAR_WITHOUT_BOUND = {"engine_words._NO_LETTERS"}


def patterns() -> dict[str, re.Pattern[str]]:
    """Every compiled pattern of the room, by where it stands."""
    found = {f"PHRASES {number} {phrase.means}": phrase.pattern for number, phrase in enumerate(PHRASES)}
    for module in pkgutil.iter_modules(embedkit.providers.__path__):
        name = f"{embedkit.providers.__name__}.{module.name}"
        for attribute, value in vars(importlib.import_module(name)).items():
            if isinstance(value, re.Pattern):
                found[f"{module.name}.{attribute}"] = value
    return found


PATTERNS = patterns()


def bounds(parsed: Any) -> Iterator[int]:
    """The most that each repetition may take."""
    for operation, value in parsed:
        if operation in _REPEATS:
            yield int(value[1])
            yield from bounds(value[2])
        elif operation is opcodes.BRANCH:
            for branch in value[1]:
                yield from bounds(branch)
        elif operation in (opcodes.SUBPATTERN, opcodes.ASSERT, opcodes.ASSERT_NOT):
            yield from bounds(value[-1])


@pytest.mark.parametrize("name", sorted(PATTERNS.keys() - _LINEAR_WITHOUT_BOUND))
def test_every_repetition_is_bounded(name: str) -> None:
    pattern = PATTERNS[name]
    assert max(bounds(parser.parse(pattern.pattern, pattern.flags & ~re.UNICODE)), default=0) <= _LONGEST


def test_the_check_sees_a_repetition_without_a_bound() -> None:
    assert max(bounds(parser.parse(r"model was unloaded|failed to load model.*operation cancell?ed"))) > _LONGEST


@pytest.mark.parametrize("seed", range(3))
def test_a_reply_made_of_beginnings_of_phrases_is_read_in_no_time(seed: int) -> None:
    """A reply of the largest size that is read, of the patterns' own words: each begins, and hardly one ends."""
    words = sorted({word for phrase in PHRASES for word in re.findall(r"[a-z]{3,}", phrase.pattern.pattern)})
    drawn = random.Random(seed)
    few = drawn.sample(words, 12)
    reply = {"error": {"message": " ".join(drawn.choice(few) for _ in range(5_000))}}
    began = time.process_time()
    words_of(reply, ["a text"])
    assert time.process_time() - began < 0.25
