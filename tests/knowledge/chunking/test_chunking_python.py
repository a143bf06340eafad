from __future__ import annotations

import ast
import sysconfig
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from embedkit.knowledge.chunking import ChunkLimits, chunk, outline_of
from embedkit.knowledge.chunking.page import Page

Found = tuple[int, int, int, str]  # first line with decorators, line of the name, last line, full name

STANDARD_LIBRARY = Path(sysconfig.get_paths()["stdlib"])

# Since Python 3.12 a string may hold its own quotes within the braces of an f-string; only the file that tests just
# that is misread, by one line.
NESTED_QUOTES = frozenset({"test/test_fstring.py"})


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """What definitions can stand among: not expressions, which are nearly all of a tree."""
    for field in ("body", "handlers", "orelse", "finalbody", "cases"):
        found = getattr(node, field, ())
        yield from found if isinstance(found, list) else ()


def defined_by_ast(tree: ast.AST, outer: str = "") -> Iterator[Found]:
    for node in statements(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            assert node.end_lineno is not None
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            yield first, node.lineno, node.end_lineno, outer + node.name
            yield from defined_by_ast(node, f"{outer}{node.name}.")
        else:
            yield from defined_by_ast(node, outer)


def defined_by_us(text: str) -> set[Found]:
    definitions = outline_of("a.py", Page(text)).definitions
    return {(it.start + 1, it.opens + 1, it.end + 1, it.name) for it in definitions}


def parsed(data: bytes) -> ast.AST | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(data)
        except (SyntaxError, ValueError, RecursionError):
            return None


@pytest.mark.parametrize("every", [12, pytest.param(1, marks=pytest.mark.soak)])
def test_definitions_are_those_of_ast_over_the_standard_library(every: int) -> None:
    """Decorators, names, first and last lines of every class and function, in every file that parses."""
    compared = 0
    for file in sorted(STANDARD_LIBRARY.rglob("*.py"))[::every]:
        name = file.relative_to(STANDARD_LIBRARY).as_posix()
        if "site-packages" in name or name in NESTED_QUOTES:
            continue
        data = file.read_bytes()
        tree = parsed(data)
        text = data.decode("utf-8", "replace")
        if tree is None or not text.strip():
            continue
        expected = set(defined_by_ast(tree))
        assert defined_by_us(text) == expected, name
        compared += len(expected)
    assert compared > 1000


@pytest.mark.parametrize(
    "text",
    [
        'x = """\ndef no(): pass\n"""\ndef yes(): pass\n',
        "x = '''it's \\''' '''\ndef yes(): pass\n",
        '# don\'t """\ndef yes(): pass\n',
        "x = 'abc\\\ndef no(): pass'\ndef yes(): pass\n",
        "x = (1\n@ 2)\ndef yes(\n    a,\n):\n    return a\n",
        "@a\n# why\n@b(\n    1,\n)\n\nasync  def yes() : pass\n",
        "class A:\n\tdef b(self):\n\t\treturn 1\n\tdef c(self): pass\n",
        "if x:\n    def a(): pass\nelse:\n    def a(): pass\n\nb = 1\n",
        "class A: x = 1\nclass_ = 2\ndefine = 3\n",
        "def a():\n    x = [\n1, 2,\n]\n    return x\n# tail\n\ny = 1\n",
        "def a(): pass",
        "\ufeffdef a(): pass\n",
        "def a():\r\n    x = 1 + \\\r\n2\r\n    return x\r\nb = a\r\n",
        "def é(ö): return ö\n",
        "\x0cdef a():\n    pass\n\x0c\nclass B:\n    pass\n",
    ],
)
def test_definitions_are_those_of_ast(text: str) -> None:
    tree = ast.parse(text.removeprefix("\ufeff"))
    assert defined_by_us(text) == set(defined_by_ast(tree))


def test_an_unclosed_bracket_does_not_hide_what_follows() -> None:
    text = "x = foo(1,\n\ndef a():\n    pass\n\nclass B:\n    def c(self):\n        pass\n"
    assert {name for *_, name in defined_by_us(text)} == {"a", "B", "B.c"}


CALENDAR = '''"""Printing."""

import sys
import datetime

FIRST = 0


# Built on demand.
@cached
class Calendar(object):
    """Base class."""

    kind = "plain"

    def __init__(self, first=0):
        self.first = first

    # Weeks begin anywhere.
    @property
    def days(self):
        for i in range(self.first, self.first + 7):
            yield i % 7


def main():
    print(Calendar().days)
'''


def test_a_class_stays_with_its_first_lines_and_names_its_members() -> None:
    chunks = chunk("calendar.py", CALENDAR, limits=ChunkLimits(64, 200))
    assert [(piece.start_line, piece.end_line, piece.scope) for piece in chunks] == [
        (1, 6, ""),
        (9, 17, "Calendar.__init__"),
        (19, 23, "Calendar.days"),
        (26, 27, "main"),
    ]


def test_a_small_file_is_one_chunk_that_names_what_it_defines() -> None:
    (only,) = chunk("calendar.py", CALENDAR)
    assert only.scope == "Calendar.__init__, days, main"


def test_a_long_function_is_cut_between_statements_at_low_indentation_and_keeps_its_name() -> None:
    step = "    if ready({0}):\n        work({0}, [\n            one, two,\n        ])\n    else:\n        rest({0})\n"
    text = "class A:\n  def long(self):\n" + "".join(step.format(i) for i in range(60))
    chunks = chunk("a.py", text)
    assert len(chunks) > 5
    assert {piece.scope for piece in chunks} == {"A.long"}
    assert all(piece.text.lstrip().startswith(("class A", "if ready")) for piece in chunks)


def test_a_long_docstring_and_a_long_literal_are_cut_between_lines() -> None:
    doc = "\n\n".join("    " + "A sentence of several words. " * 4 for _ in range(40))
    table = "".join(f"    ({i}, 'name {i}'),\n" for i in range(400))
    text = f'def f():\n    """Head.\n\n{doc}\n    """\n\nTABLE = [\n{table}]\n'
    chunks = chunk("a.py", text)
    assert all(piece.tokens <= 330 for piece in chunks)
    assert chunks[2].scope == "f"


def test_a_class_header_stays_with_the_first_lines_of_a_docstring_that_is_split() -> None:
    doc = "".join(f"    Line {i} of a very long docstring that says much.\n" for i in range(60))
    first = "def a(one, two):\n" + "    one.append(two[one + 1])\n" * 12
    text = f'{first}\nclass B:\n    """\n{doc}    """\n\n    def c(self):\n        pass\n'
    chunks = chunk("a.py", text)
    header = next(piece for piece in chunks if "class B:" in piece.text)
    assert header.text.startswith("class B:")
    assert "Line 3 " in header.text
    assert header.scope == "B"


def test_the_name_tells_nothing_where_the_first_line_does() -> None:
    (only,) = chunk("bin/tool", "#!/usr/bin/env python3\ndef main():\n    pass\n")
    assert only.scope == "main"
