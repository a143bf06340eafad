"""Functions of a library, each with what its docstring says first and without it: questions with one right answer."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import attrs

SEED = 20240229
SET_SIZE = 1_000


@attrs.frozen
class Function:
    """One function: its qualified name, what its docstring says first, and its lines without the docstring."""

    symbol: str
    query: str
    code: str


def read_functions(root: Path) -> list[Function]:
    """Every function under ``root`` whose docstring's first line has two words, each text once."""
    found: dict[str, Function] = {}
    for path in sorted(root.rglob("*.py")):
        if "site-packages" in path.parts:
            continue
        try:
            text = path.read_text("utf-8")
            tree = ast.parse(text)
        except (UnicodeDecodeError, SyntaxError, ValueError):  # the library's own tests carry broken files
            continue
        for function in _functions(tree, text.splitlines(keepends=True), ()):
            found.setdefault(function.code, function)
    return list(found.values())


def _functions(node: ast.AST, lines: list[str], scope: tuple[str, ...]) -> Iterator[Function]:
    for child in ast.iter_child_nodes(node):
        inner = scope
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = (*scope, child.name)
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            function = _without_docstring(child, lines, ".".join(inner))
            if function is not None:
                yield function
        yield from _functions(child, lines, inner)


def _without_docstring(node: ast.FunctionDef | ast.AsyncFunctionDef, lines: list[str], symbol: str) -> Function | None:
    docstring = (ast.get_docstring(node) or "").strip()
    query = docstring.splitlines()[0].strip() if docstring else ""
    if len(query.split()) < 2 or len(node.body) < 2:
        return None
    first, second = node.body[:2]
    end = first.end_lineno or first.lineno
    if first.lineno == node.lineno or second.lineno <= end:
        return None
    start = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    return Function(symbol, query, "".join(lines[start - 1 : first.lineno - 1] + lines[end : node.end_lineno]))
