"""Functions of other languages' trees with names in camel case, to be asked for by name, as written or not."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

import attrs
from tree_sitter import Parser

from benchmarks.chunks import functions_of, language_of
from benchmarks.functions import SEED
from benchmarks.trees import TREES

_CAMEL = re.compile(r"[a-z]+[A-Z][A-Za-z]+|[A-Z][a-z]+[A-Z][A-Za-z]+")
_TREES = ("Go", "JavaScript", "TypeScript", "Java", "C#", "Kotlin", "PHP")
_MOST_LINES = 60


@attrs.frozen
class NamedFunction:
    """One function: its name, a suffix that says its language, and its lines."""

    name: str
    suffix: str
    code: str


def read_named_functions(size: int) -> list[NamedFunction]:
    """``size`` functions (or as many as can be had), no two of one name, drawn with a fixed seed from all trees."""
    found: dict[str, NamedFunction] = {}
    for one in _all():
        found.setdefault(one.name.lower(), one)
    drawn = sorted(found.values(), key=lambda one: one.name)
    random.Random(SEED).shuffle(drawn)
    return drawn[:size]


def _all() -> Iterator[NamedFunction]:
    for tree in TREES:
        if tree.name not in _TREES or tree.fetch():
            continue
        parser = Parser(language_of(tree))
        for _, text in tree.texts():
            lines = text.split("\n")
            for function in functions_of(parser.parse(text.encode()).root_node, lines):
                if _CAMEL.fullmatch(function.name) and function.end - function.start < _MOST_LINES:
                    code = "\n".join(lines[function.start : function.end + 1]) + "\n"
                    yield NamedFunction(function.name, tree.suffixes[0], code)
