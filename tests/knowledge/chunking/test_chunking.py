from __future__ import annotations

import importlib.util
import statistics
import sysconfig
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embedkit.knowledge.chunking import ChunkLimits, chunk, estimate_tokens
from embedkit.knowledge.model import Chunk

PATHS = ("a.py", "a.c", "a.js", "a.sql", "a.sh", "a.md", "a.rst", "README", "a.json", "a.csv", "a.unknown", "Makefile")

# Pieces of structure of every kind, so that a few of them make a text that means something to some chunker.
FRAGMENTS = (
    *("def f(a, b):", "class C:", "async def g():", "@decorated(", ")", "    return 1", "\tx = [", "]", "if x:"),
    *('"""', "'''", '"', "'", "# note", "\\", "else:", "r'\\'", "    def inner(self): pass", "match = '''#'''"),
    *(
        "int main(void) {",
        "}",
        "/* begin",
        "end */",
        "// line",
        "function go() {",
        "fn run() {",
        "CREATE TABLE t (id);",
    ),
    *("# Title", "## Deeper", "Title", "=====", "-----", "~~~", "```", "- item", "a paragraph of some words"),
    *(
        "",
        "",
        " ",
        "\t",
        "\f",
        "\r",
        "\x0b",
        "\x1c",
        "\u2028",
        "\u00a0",
        "\ufeff",
        "\ud800",
        "é" * 40,
        "漢字" * 60,
        "😀",
    ),
    *("x" * 700, "word " * 300, '{"a": [1, 2, {"b": null}]}', "a,b,c", "0123456789" * 50, "----" * 80),
)

texts = st.one_of(
    st.text(st.characters(), max_size=400),
    st.lists(st.tuples(st.sampled_from(("", "    ", "        ", "\t")), st.sampled_from(FRAGMENTS)), max_size=60).map(
        lambda parts: "\n".join(indent + part for indent, part in parts)
    ),
    st.lists(st.sampled_from(FRAGMENTS), max_size=40).map("\r\n".join),
)
limits = st.tuples(st.integers(16, 300), st.integers(0, 300)).map(lambda pair: ChunkLimits(pair[0], sum(pair)))
paths = st.sampled_from(PATHS)


def ink(text: str) -> str:
    """What is left of a text without white space and byte order marks."""
    return "".join(text.replace("\ufeff", "").split())


def check_whole(text: str, chunks: list[Chunk], bounds: ChunkLimits) -> None:
    """Every line with ink lies in one chunk, in order and as it stands in the text; none is too large."""
    inner = text.rstrip("\r\n")
    if "\r" in inner and "\n" not in inner:
        text = text.replace("\r", "\n")  # old Macs end lines so
    lines = text.split("\n")
    assert [piece.ordinal for piece in chunks] == list(range(len(chunks)))
    assert ink("".join(piece.text for piece in chunks)) == ink(text)
    at = 1
    for position, piece in enumerate(chunks):
        assert at <= piece.start_line <= piece.end_line <= len(lines)
        neighbours = [*chunks[max(0, position - 1) : position], *chunks[position + 1 : position + 2]]
        shares = [
            other for other in neighbours if {other.start_line, other.end_line} == {piece.start_line, piece.end_line}
        ]
        at = piece.end_line if shares else piece.end_line + 1
        if shares:
            assert piece.text in lines[piece.start_line - 1]
        else:
            assert piece.text == "\n".join(lines[piece.start_line - 1 : piece.end_line]).removesuffix("\r") or (
                piece.start_line == piece.end_line and piece.text in lines[piece.start_line - 1]
            )
        assert not piece.text.isspace()
        assert 1 <= piece.tokens <= bounds.max_tokens
        assert estimate_tokens(piece.text) <= bounds.max_tokens


@settings(deadline=None)
@given(path=paths, text=texts, bounds=limits)
def test_chunks_hold_every_line_once_in_order_and_within_the_limits(path: str, text: str, bounds: ChunkLimits) -> None:
    chunks = chunk(path, text, limits=bounds)
    check_whole(text, chunks, bounds)
    assert chunk(path, text, limits=bounds) == chunks


@settings(deadline=None)
@given(path=paths, text=texts)
def test_a_trailing_line_end_changes_nothing(path: str, text: str) -> None:
    text = text.rstrip("\n\r")
    assert chunk(path, text) == chunk(path, text + "\n")


@pytest.mark.parametrize("text", ["", "\n", " \n\t\n\f\n", "\ufeff", "\ufeff\n", "\r\n\r\n", "\u00a0\n"])
def test_a_text_without_ink_has_no_chunks(text: str) -> None:
    assert chunk("a.py", text) == []
    assert chunk("a.txt", text) == []


def test_carriage_returns_stay_inside_a_chunk_and_not_at_its_end() -> None:
    (only,) = chunk("a.py", "x = 1\r\ny = 2\r\n")
    assert (only.text, only.start_line, only.end_line) == ("x = 1\r\ny = 2", 1, 2)


def test_small_neighbours_are_merged_up_to_the_target() -> None:
    text = "\n\n".join(f"def f{i}():\n    return {i}" for i in range(200))
    chunks = chunk("a.py", text)
    assert all(200 <= piece.tokens <= 240 for piece in chunks[:-1])
    assert all(piece.text.startswith("def ") for piece in chunks)


def test_a_large_table_is_cut_between_lines() -> None:
    text = "".join(f"{i},name {i},{i * 7}\n" for i in range(2000))
    chunks = chunk("a.csv", text)
    assert min(piece.tokens for piece in chunks) > 50
    assert sum(piece.tokens for piece in chunks) / len(chunks) > 120
    assert sum(piece.text.count("\n") + 1 for piece in chunks) == 2000


def test_one_enormous_line_is_cut_between_words_and_keeps_its_number() -> None:
    text = "first\n" + "lorem ipsum dolor " * 60_000 + "\nlast"
    chunks = chunk("a.txt", text)
    inner = [piece for piece in chunks if piece.start_line == piece.end_line == 2]
    assert len(inner) > 500
    assert all(piece.text.split()[0] in ("lorem", "ipsum", "dolor") for piece in inner)
    assert max(piece.tokens for piece in inner) <= 240


def test_a_character_is_never_torn() -> None:
    text = "漢字😀é" * 20_000
    assert "".join(piece.text for piece in chunk("a.txt", text)) == text


def test_limits_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ValueError, match="max_tokens=100 is below target_tokens=200"):
        ChunkLimits(200, 100)
    with pytest.raises(ValueError, match="target_tokens"):
        ChunkLimits(3, 100)


SIZE = 80_000
HARD_TEXTS = {
    **{f"only {sign!r}": sign * (SIZE // len(sign)) for sign in ('"', "'''", "(", "{", "}", "\\", "`", "#", "@")},
    **{f"lines of {line!r}": line * (SIZE // len(line)) for line in ("a\n", '"\n', "\\\n", "@\n", "# \n", "'''\n")},
    **{f"lines {line!r}": line * (SIZE // len(line)) for line in ("/*\n", "def a\n", "class A:\n", "```\n", "==\n")},
    **{f"words {word!r}": word * (SIZE // len(word)) + "(" for word in ("a ", "a.", "a::", "<", "a<", "x,", "# ")},
    "blank lines": "\n" * SIZE + "x",
    "spaces": " " * SIZE + "x",
    "brackets closed late": "(\n" * (SIZE // 4) + ")\n" * (SIZE // 4),
    "nested functions": "".join(" " * depth + "def f():\n" for depth in range(1400)),
    "nested blocks": "".join(" " * depth + "f() {\n" for depth in range(1400)),
    "sawtooth": "".join(" " * (i % 61) + "x\n" for i in range(SIZE // 32)),
    "signs": "".join(map(chr, range(1, 0x3000))) * 8,
}


@pytest.mark.parametrize("name", HARD_TEXTS)
def test_no_text_takes_more_than_its_share(name: str) -> None:
    """Anything that grows with the square would need minutes here; processor time, so that neighbours do not count."""
    text = HARD_TEXTS[name]
    for path in ("a.py", "a.c", "a.md", "a.rst"):
        began = time.process_time()
        chunks = chunk(path, text)
        assert time.process_time() - began < 2
        assert ink("".join(piece.text for piece in chunks)) == ink(text)


@settings(deadline=None)
@given(st.text())
def test_an_estimate_is_zero_only_for_nothing(text: str) -> None:
    assert (estimate_tokens(text) == 0) == (text == "")


def test_an_estimate_is_close_to_what_a_tokenizer_counts() -> None:
    """Over pieces of the standard library, and the tokenizer of the embedded default model."""
    wordllama = importlib.util.find_spec("wordllama")  # its import would bring in far more than the file
    tokenizers = pytest.importorskip("tokenizers", reason="the local extra is not installed")
    assert wordllama is not None
    assert wordllama.origin is not None
    (file,) = (Path(wordllama.origin).parent / "tokenizers").glob("*.json")
    tokenizer = tokenizers.Tokenizer.from_file(str(file))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    library = Path(sysconfig.get_paths()["stdlib"])
    pieces = [piece for name in ("json", "email", "asyncio") for file in sorted((library / name).glob("*.py"))
              for piece in chunk(file.name, file.read_text())]  # fmt: skip
    counted = [
        len(code.ids) for code in tokenizer.encode_batch([piece.text for piece in pieces], add_special_tokens=False)
    ]
    ratios = [piece.tokens / count for piece, count in zip(pieces, counted, strict=True)]
    assert len(ratios) > 500
    assert 0.97 < statistics.mean(ratios) < 1.05
    assert statistics.stdev(ratios) < 0.08
