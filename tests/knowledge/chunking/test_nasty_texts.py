"""Texts made to be slow: each is cut in time that grows with its size, whatever stands in it."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embedkit.knowledge.chunking import chunk
from embedkit.knowledge.searching.words import embedding_input, index_words, match_expression
from embedkit.knowledge.sources.filters import look_at

MEBIBYTE = 1 << 20
PATHS = ["a.py", "a.c", "a.js", "a.md", "a.rst", "a.txt", "a.json", "a.sql", "a.sh", "a.csv", "a.unknown", "README"]

LINES = {
    "stars, a title, stars": "*" * 48 + "[a title]" + "*" * 20,
    "a heading and blanks": "# x" + " " * 230 + "x",
    "words and stars": "a* " * 70 + "(",
    "types": "a::b * & " * 25 + "f(x",
    "brackets": "([{<" * 60,
    "hashes": "#" * 240,
    "rules": "=" * 239 + "x",
    "quotes": "\"'" * 120,
    "backslashes": "\\" * 240,
    "modifiers": "public static " * 17,
    "generics": "class <" * 34,
    "assignments": "const a : " + "(" * 200 + "=> ",
    "comments": "/* " * 80,
    "marker": "# auto-generated " * 14,
    "create": "create or replace " * 13,
    "capitals": "aB" * 120,
    "pipes": "|" * 240,
    "fences": "`" * 239 + "x",
    "a letter": "a",
    "a brace": "{",
    "a title and its rule": "a\n=",
    "a pipe": "|",
    "a hash": "#",
    "an empty heading": "# a",
}

PIECES = [
    "\n", "\n\n", "\r\n", "  ", "    ", "\t", "a\n", "{\n", "}\n", "(", ")", "[", "]", '"', "'", "`", "\\", "\x0c",
    "\u200b",
    "# a\n", "#", "```\n", "~~~\n", "===\n", "---\n", "|a|b|\n", "|-|-|\n", "- ", "1. ", "> ", "/*", "*/", "//",
    "def f():\n", "class A:\n", "if x:\n", "else:\n", "@mark\n", "function f() {\n", "=> ", "impl A for B {\n",
    "#if 1\n",
    "#endif\n", "static int f(", "::", "<a>", "</a>", '{"a": 1},\n', "1,2,3\n", "HTTPServer",
    "\u00e9", "\u4e2d\u6587", "x = 1\n",
]  # fmt: skip


def assert_quick(path: str, text: str) -> None:
    began = time.process_time()
    for piece in chunk(path, text):
        index_words(piece.text)
        embedding_input(piece.scope, piece.text)
    look_at(path, text.encode("utf-8", "surrogatepass"))
    assert time.process_time() - began < 2, path


@pytest.mark.parametrize("path", ["a.c", "a.js", "a.md", "a.rst", "a.py"])
@pytest.mark.parametrize("name", LINES)
def test_a_line_repeated_to_a_mebibyte_is_cut_soon(path: str, name: str) -> None:
    """48 stars, a title in brackets and 20 stars stood still for hours, as did a heading's 230 blanks."""
    line = LINES[name]
    assert_quick(path, (line + "\n") * (MEBIBYTE // 8 // len(line)))


@pytest.mark.soak
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", LINES)
@pytest.mark.parametrize("between", ["\n", "", " "])
def test_any_mebibyte_is_cut_soon(path: str, name: str, between: str) -> None:
    line = LINES[name]
    assert_quick(path, (line + between) * (MEBIBYTE // len(line + between)))


@settings(max_examples=12)
@given(
    st.sampled_from(PATHS),
    st.text(st.sampled_from("a*#[](){}<>/\\\"'`|=-_:;,.&~ \t\r\n0Aé中\u200b"), min_size=1, max_size=12),
    st.integers(0, 2**32),
)
def test_generated_nasties_are_cut_soon(path: str, pieces: str, seed: int) -> None:
    chance = random.Random(seed)
    assert_quick(path, "".join(chance.choices(pieces, k=1 << 17)))


@pytest.mark.soak
@settings(max_examples=200)
@given(
    st.sampled_from(PATHS),
    st.lists(st.sampled_from(PIECES), min_size=1, max_size=8),
    st.integers(0, 2**32),
)
def test_any_generated_mebibyte_is_cut_soon(path: str, pieces: list[str], seed: int) -> None:
    """Of pieces that mean something to one outline or another, many of them short lines."""
    mean = sum(len(piece.encode()) for piece in pieces) / len(pieces)
    assert_quick(path, "".join(random.Random(seed).choices(pieces, k=int(MEBIBYTE / mean))))


def test_a_long_query_is_bounded() -> None:
    began = time.process_time()
    for line in LINES.values():
        match_expression(line * 1000)
    assert time.process_time() - began < 4
