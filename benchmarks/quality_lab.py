"""Search quality, and the embedder's pace, without a store: what the constants of words and ranking were chosen by.

    python -m benchmarks.quality_lab quality
    python -m benchmarks.quality_lab speed

Quality: docstring to function over the standard library. A query is the first line of a function's docstring, the
right answer that function without its docstring, the candidates the 1,000 functions of a set. Sets are disjoint and
drawn with a fixed seed; the constants that do best on A and B are those that do best on all together.
"""

from __future__ import annotations

import random
import sqlite3
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Literal

import numpy as np

from benchmarks.functions import SEED, SET_SIZE, Function, read_functions
from embedkit.knowledge.searching.ranking import CANDIDATES, COLUMN_WEIGHTS, fuse
from embedkit.knowledge.searching.words import TOKENIZE, embedding_input, index_words, match_expression
from embedkit.providers.static_model import StaticModel

BATCH = 64
Hits = list[tuple[int, float]]


def vector_lists(model: StaticModel, functions: Sequence[Function], symbols: bool) -> list[Hits]:
    """For each query its nearest functions by cosine."""
    inputs = [embedding_input(one.symbol if symbols else "", one.code) for one in functions]
    cosine = model.embed([one.query for one in functions]) @ model.embed(inputs).T
    best = np.argsort(-cosine, axis=1, kind="stable")[:, :CANDIDATES]
    return [[(int(i), float(row[i])) for i in order] for row, order in zip(cosine, best, strict=True)]


def text_lists(functions: Sequence[Function], symbols: bool) -> list[Hits]:
    """For each query its nearest functions by BM25."""
    database = sqlite3.connect(":memory:")
    database.execute(f'CREATE VIRTUAL TABLE t USING fts5(path, symbol, text, tokenize = "{TOKENIZE}")')
    rows = (
        (number, "a", index_words(one.symbol) if symbols else "", index_words(one.code))
        for number, one in enumerate(functions)
    )
    database.executemany("INSERT INTO t(rowid, path, symbol, text) VALUES (?, ?, ?, ?)", rows)
    weights = ", ".join(map(str, COLUMN_WEIGHTS))
    statement = f"SELECT rowid, -bm25(t, {weights}) AS s FROM t WHERE t MATCH ? ORDER BY s DESC LIMIT {CANDIDATES}"
    expressions = (match_expression(one.query) for one in functions)
    return [database.execute(statement, (one,)).fetchall() if one else [] for one in expressions]


def reciprocal_rank(lists: Sequence[Hits]) -> float:
    """Mean reciprocal rank; list i should hold i, and counts nothing where it does not."""
    places = ([number for number, _ in hits] for hits in lists)
    return sum(1 / (1 + ids.index(i)) for i, ids in enumerate(places) if i in ids) / len(lists)


def quality() -> None:
    """Print the table."""
    functions = read_functions(Path(sysconfig.get_path("stdlib")))
    random.Random(SEED).shuffle(functions)
    model = StaticModel.load()
    print(f"{len(functions)} functions, sets of {SET_SIZE}; mean reciprocal rank")
    print("set  symbol  vector    text  hybrid  hybrid/vector")
    for symbols in (True, False):
        figures = []
        for number in range(len(functions) // SET_SIZE):
            chosen = functions[number * SET_SIZE : (number + 1) * SET_SIZE]
            vector, text = vector_lists(model, chosen, symbols), text_lists(chosen, symbols)
            hybrid = [fuse(v, t, k=CANDIDATES) for v, t in zip(vector, text, strict=True)]
            figures.append([reciprocal_rank(lists) for lists in (vector, text, hybrid)])
            _print_row(chr(ord("A") + number), symbols, figures[-1])
        _print_row("mean", symbols, np.mean(figures, axis=0).tolist())


def _print_row(name: str, symbols: bool, row: Sequence[float]) -> None:
    symbol: Literal["given", "empty"] = "given" if symbols else "empty"
    print(f"{name:4} {symbol:7}" + "".join(f"{value:7.3f} " for value in row) + f"  {row[2] / row[0]:10.2f}")


def speed() -> None:
    """Print the embedder's pace beside that of its tokenizer alone, alternately, batch 64; and index_words'."""
    model = StaticModel.load()
    texts = [piece for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")) for piece in _pieces(path)]
    random.Random(SEED).shuffle(texts)
    texts = texts[: 40 * BATCH]
    batches = [texts[start : start + BATCH] for start in range(0, len(texts), BATCH)]
    for workers in (1, 2):
        tokenizer, embedder = [], []
        for _ in range(7):
            tokenizer.append(_seconds(model.tokenize, batches, workers))
            embedder.append(_seconds(model.embed, batches, workers))
        alone, whole = median(tokenizer), median(embedder)
        print(f"{workers} workers: tokenizer alone {len(texts) / alone:7,.0f} chunks/s", end=", ")
        print(f"embedder {len(texts) / whole:7,.0f} chunks/s: {alone / whole:.2f} of it")
    words = min(_seconds(lambda batch: [index_words(text) for text in batch], batches, 1) for _ in range(5))
    print(f"index_words {sum(map(len, texts)) / words / 1e6:.0f} MB/s")


def _pieces(path: Path, size: int = 850) -> Iterator[str]:
    text = path.read_text("utf-8")
    return (text[start : start + size] for start in range(0, len(text), size))


def _seconds(work: Callable[[Sequence[str]], object], batches: Sequence[Sequence[str]], workers: int) -> float:
    with ThreadPoolExecutor(workers) as threads:
        begun = time.perf_counter()
        for _ in threads.map(work, batches):
            pass
        return time.perf_counter() - begun


if __name__ == "__main__":
    {"quality": quality, "speed": speed}[sys.argv[1]]()
