"""Halves of a chunk: nothing is lost, nothing doubled, every part is shorter and knows its lines."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from embedkit.knowledge.chunking import chunk
from embedkit.knowledge.chunking.halving import LEAST_CHARACTERS, halves
from embedkit.knowledge.model import Chunk

# Words, blank lines, long lines, other alphabets, line ends of other systems, and what is no line end at all.
TEXTS = st.lists(
    st.sampled_from(["word ", "\n", "\n\n", "x" * 40, "    ", "\t", "é", "漢字", "\r\n", "\x0c", "\u2028"])
).map("".join)


def leaves(piece: Chunk) -> Iterator[Chunk]:
    parts = halves(piece)
    if not parts:
        yield piece
    for part in parts:
        yield from leaves(part)


def ink(text: str) -> str:
    return "".join(text.split())


@given(TEXTS, st.integers(1, 50))
@example("x" * 200, 7)
@example("short\n" + "x" * 500 + "\nshort", 1)
@example(" " * 400 + "x", 1)
def test_the_parts_hold_all_the_ink_in_order_each_with_its_lines(text: str, start: int) -> None:
    whole = Chunk(3, start, start + text.count("\n"), text, "A.b", 1)
    lines = dict(enumerate(text.split("\n"), start))
    parts = list(leaves(whole))
    assert ink("".join(part.text for part in parts)) == ink(text)
    for part in parts:
        assert (part.scope, part.ordinal) == ("A.b", 3)
        if part.start_line == part.end_line and part is not whole:
            assert part.text in lines[part.start_line]
        else:
            held = "\n".join(lines[number] for number in range(part.start_line, part.end_line + 1))
            assert part.text in (held, held.removesuffix("\r"))
    assert [part.start_line for part in parts] == sorted(part.start_line for part in parts)
    assert all(first.end_line <= second.start_line for first, second in pairwise(parts))
    assert parts == list(leaves(whole))


@given(TEXTS)
def test_each_half_is_shorter_holds_ink_and_there_are_two_if_both_would(text: str) -> None:
    parts = halves(Chunk(0, 1, 1 + text.count("\n"), text, "", 1))
    assert all(len(part.text) < len(text) and part.text.strip() for part in parts)
    if len(text) < LEAST_CHARACTERS or not text.strip():
        assert parts == []
    else:
        assert 1 <= len(parts) <= 2
        assert all(part.tokens > 0 for part in parts)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("one one one\ntwo two\nthree", [(5, 5, "one one one"), (6, 7, "two two\nthree")]),
        ("one one one\r\ntwo two\r\nthree", [(5, 5, "one one one"), (6, 7, "two two\r\nthree")]),
        ("first part\n\n\n\nsecond part", [(5, 5, "first part"), (9, 9, "second part")]),
        ("a\n" + "x" * 30, [(5, 5, "a"), (6, 6, "x" * 30)]),
        ("several words in one line", [(5, 5, "several words "), (5, 5, "in one line")]),
        ("x" * 33, [(5, 5, "x" * 16), (5, 5, "x" * 17)]),
        ("fifteen letters", []),
    ],
)
def test_where_it_is_cut(text: str, expected: list[tuple[int, int, str]]) -> None:
    parts = halves(Chunk(0, 5, 5 + text.count("\n"), text, "", 1))
    assert [(part.start_line, part.end_line, part.text) for part in parts] == expected


@given(TEXTS)
def test_a_chunk_of_the_chunker_is_halved_within_its_lines(text: str) -> None:
    for whole in chunk("a.txt", text):
        for part in leaves(whole):
            assert whole.start_line <= part.start_line <= part.end_line <= whole.end_line
