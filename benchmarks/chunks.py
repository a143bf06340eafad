"""How well whole trees of twelve languages are cut, beside a splitter of syntax trees: ``python -m benchmarks.chunks``.

What is right is read off tree-sitter's syntax trees. Of each tree (see ``trees``):

- *whole*: functions of two lines or more that fit the target, all of whose lines lie in one chunk;
- *parted*: functions whose head (the comment, attributes and annotations right above, up to the first line of the body)
  lies in more than one chunk, of those whose head is no more than half the target;
- *named*: short functions whose chunk names them in its scope;
- *bought again*: chunks whose input is new after one edit (a line put in, taken away or changed inside a function),
  over edits drawn with a fixed seed.

The splitter beside it is the usual one: what is too large is split into its children, neighbours are merged up to the
target. It has no scopes.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib import import_module
from itertools import pairwise

import attrs
from tree_sitter import Language, Node, Parser

from benchmarks.measure import Figure, report, say
from benchmarks.trees import TREES, Tree
from embedkit.knowledge.chunking import ChunkLimits, chunk, estimate_tokens
from embedkit.knowledge.model import input_hash
from embedkit.knowledge.searching.words import embedding_input

SEED = 20240229
EDITS = 300
LIMITS = ChunkLimits()

_FUNCTIONS = frozenset(
    {"function_definition", "function_declaration", "generator_function_declaration", "method_declaration"}
    | {"method_definition", "constructor_declaration", "function_item", "method", "singleton_method"}
)
_VALUES = frozenset({"arrow_function", "function_expression"})
_ABOVE = frozenset(
    {"comment", "line_comment", "block_comment", "attribute_item", "decorator", "annotation", "marker_annotation"}
)
# The module of each tree's grammar, and what of it gives the language.
_GRAMMARS = {
    "Python": ("tree_sitter_python", "language"),
    "Go": ("tree_sitter_go", "language"),
    "C": ("tree_sitter_c", "language"),
    "GNU C": ("tree_sitter_c", "language"),
    "JavaScript": ("tree_sitter_javascript", "language"),
    "TypeScript": ("tree_sitter_typescript", "language_typescript"),
    "Java": ("tree_sitter_java", "language"),
    "Rust": ("tree_sitter_rust", "language"),
    "C#": ("tree_sitter_c_sharp", "language"),
    "Ruby": ("tree_sitter_ruby", "language"),
    "PHP": ("tree_sitter_php", "language_php"),
    "Kotlin": ("tree_sitter_kotlin", "language"),
}


@attrs.frozen
class Function:
    """A function as the syntax tree has it; lines are 0-based and inclusive.

    Attributes:
        name: Its own.
        head: Its first line with what stands right above it.
        start: Its first line, its own decorators included.
        body: The first line of its body's first statement.
        end: Its last.
        tokens: Of its lines.
    """

    name: str
    head: int
    start: int
    body: int
    end: int
    tokens: int


@attrs.frozen
class Piece:
    """A chunk: its lines, 0-based and inclusive, what the engine is given, and its scope."""

    start: int
    end: int
    input: str
    scope: str = ""


Cutter = Callable[[str, str], Sequence[Piece]]


@attrs.define
class Tally:
    """Counts over a tree: functions that were looked at, and those of them that are so."""

    short: int = 0
    whole: int = 0
    named: int = 0
    heads: int = 0
    parted: int = 0
    chunks: int = 0

    def add(self, functions: Sequence[Function], pieces: Sequence[Piece]) -> None:
        """Count one text."""
        home: dict[int, int] = {}
        for number, piece in enumerate(pieces):
            home.update(dict.fromkeys(range(piece.start, piece.end + 1), number))
        self.chunks += len(pieces)
        for function in functions:
            if function.tokens <= LIMITS.target_tokens:
                self.short += 1
                homes = {home[line] for line in range(function.start, function.end + 1) if line in home}
                self.whole += len(homes) == 1
                scopes = " ".join(pieces[number].scope for number in homes)
                self.named += function.name in scopes
            if function.body > function.head:
                self.heads += 1
                self.parted += len({home[line] for line in range(function.head, function.body + 1) if line in home}) > 1


def functions_of(root: Node, lines: Sequence[str]) -> Iterator[Function]:
    """The functions of a syntax tree that have a body."""
    pending = [root]
    while pending:
        node = pending.pop()
        pending += node.children
        body = _body(node)
        if body is None or node.type not in _FUNCTIONS | _VALUES or node.is_error:
            continue
        outer, name = _name(node)
        if name is None or outer.end_point[0] == outer.start_point[0]:
            continue
        start, end = outer.start_point[0], outer.end_point[0]
        head = start
        above = outer.prev_sibling
        while above is not None and above.type in _ABOVE and _last_row(above) == head - 1 and _fills(above, lines):
            head, above = above.start_point[0], above.prev_sibling
        first = next((child for child in _statements(body) if child.is_named and child.type not in _ABOVE), body)
        tokens = estimate_tokens("\n".join(lines[start : end + 1]))
        if estimate_tokens("\n".join(lines[head : first.start_point[0] + 1])) <= LIMITS.target_tokens // 2:
            yield Function(name, head, start, first.start_point[0], end, tokens)
        else:
            yield Function(name, start, start, start, end, tokens)


def _statements(body: Node) -> Sequence[Node]:
    if body.type == "function_body" and body.named_child_count == 1 and body.named_children[0].type == "block":
        return body.named_children[0].children
    return body.children


def _fills(node: Node, lines: Sequence[str]) -> bool:
    return not lines[node.start_point[0]].encode()[: node.start_point[1]].strip()


def _last_row(node: Node) -> int:
    row, column = node.end_point
    return row - 1 if column == 0 else row


def _body(node: Node) -> Node | None:
    body = node.child_by_field_name("body")
    return body or next((child for child in node.children if child.type == "function_body"), None)


def _name(node: Node) -> tuple[Node, str | None]:
    """The node that stands for a function with its decorators or its variable, and its name."""
    outer = node
    name = node.child_by_field_name("name")
    if node.type in _VALUES:
        outer = node.parent or node
        fields = ("name", "property", "key")
        name = next((found for field in fields if (found := outer.child_by_field_name(field)) is not None), None)
        if outer.type not in ("variable_declarator", "public_field_definition", "field_definition", "pair"):
            name = None
    declarator = node.child_by_field_name("declarator")
    while name is None and declarator is not None:
        if declarator.type in ("identifier", "field_identifier"):
            name = declarator
        declarator = declarator.child_by_field_name("declarator")
    while outer.parent is not None and outer.parent.type in (
        "decorated_definition", "export_statement", "lexical_declaration", "variable_declaration"
    ):  # fmt: skip
        outer = outer.parent
    return outer, None if name is None or name.text is None else name.text.decode()


def language_of(tree: Tree) -> Language:
    """The grammar of a tree's language."""
    module, function = _GRAMMARS[tree.name]
    return Language(getattr(import_module(module), function)())


def ours(path: str, text: str) -> list[Piece]:
    """The chunks that embedkit makes."""
    return [
        Piece(part.start_line - 1, part.end_line - 1, embedding_input(part.scope, part.text), part.scope)
        for part in chunk(path, text, limits=LIMITS)
    ]


def split_by_tree(language: Language, path: str, text: str) -> list[Piece]:
    """What is too large is split into its children; neighbours are merged up to the target."""
    data = text.encode()
    edges: list[int] = []

    def size(low: int, high: int) -> int:
        return estimate_tokens(data[low:high].decode("utf-8", "replace"))

    pending = [Parser(language).parse(data).root_node]
    while pending:
        node = pending.pop()
        edges.append(node.start_byte)
        if size(node.start_byte, node.end_byte) > LIMITS.target_tokens:
            pending += node.children[::-1]
    pieces: list[Piece] = []
    low = 0
    edges = sorted({*edges, len(data)})
    for before, after in pairwise(edges):
        if after > low and size(low, after) > LIMITS.target_tokens and before > low:
            pieces.append(_piece(data, low, before))
            low = before
    pieces.append(_piece(data, low, len(data)))
    return pieces


def _piece(data: bytes, low: int, high: int) -> Piece:
    inner = data[low:high]
    begin = low + len(inner) - len(inner.lstrip())
    end = low + len(inner.rstrip())
    return Piece(data.count(b"\n", 0, begin), data.count(b"\n", 0, end), inner.decode("utf-8", "replace"))


def edited(text: str, functions: Sequence[Function], draw: random.Random) -> str:
    """The text after one edit inside one of its functions."""
    lines = text.split("\n")
    function = draw.choice(functions)
    at = draw.randrange(function.start + 1, function.end + 1)
    indent = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
    kind = draw.randrange(3)
    if kind == 0:
        lines.insert(at, f"{indent}// changed {draw.random()}")
    elif kind == 1 and at < function.end and not set("{}()[]") & set(lines[at]):
        del lines[at]
    else:
        lines[at] = lines[at] + f" // {draw.random()}"
    return "\n".join(lines)


def bought_again(texts: Sequence[tuple[str, str, Sequence[Function]]], cut: Cutter) -> float:
    """Inputs that are new after an edit, on average."""
    draw = random.Random(SEED)
    usable = [each for each in texts if each[2]]
    new = 0
    for _ in range(EDITS):
        path, text, functions = draw.choice(usable)
        after = edited(text, functions, draw)
        held = {input_hash(piece.input) for piece in cut(path, text)}
        new += len({input_hash(piece.input) for piece in cut(path, after)} - held)
    return new / EDITS


def figures_of(tree: Tree) -> list[Figure]:
    """Measure one tree."""
    why = tree.fetch()
    if why:
        return [Figure(f"{tree.name}: short functions whole", 0.97, 0.0, skipped=why)]
    language = language_of(tree)
    texts = []
    for path, text in tree.texts():
        root = Parser(language).parse(text.encode()).root_node
        texts.append((path, text, list(functions_of(root, text.split("\n")))))
    ways: dict[str, Cutter] = {"ours": ours, "splitter": partial(split_by_tree, language)}
    found: list[Figure] = []
    for way, cut in ways.items():
        tally = Tally()
        for path, text, functions in texts:
            tally.add(functions, cut(path, text))
        again = bought_again(texts, cut)
        whole, named = tally.whole / tally.short, tally.named / tally.short
        parted = tally.parted / max(tally.heads, 1)
        say(
            f"  {tree.name:10} {way:12} {tally.short:5} short, {tally.chunks:6} chunks: whole {whole:.3f}, parted "
            f"{parted:.3f}, named {named:.3f}, bought again {again:.2f}"
        )
        is_ours = way == "ours"
        whose = tree.name if is_ours else f"{tree.name}, splitter"
        found += [
            Figure(f"{whose}: short functions whole", 0.97 if is_ours else None, whole),
            Figure(f"{whose}: heads parted", 0.05 if is_ours else None, parted, "at most"),
            Figure(f"{whose}: chunks bought again after an edit", None, again),
        ]
        if is_ours:
            found.append(Figure(f"{whose}: names in scope", 0.95, named))
    return found


def main() -> int:
    """Measure every tree, or those that are named."""
    wanted = [name for name in sys.argv[1:] if not name.startswith("-")]
    return report("chunks", [f for tree in TREES if not wanted or tree.name in wanted for f in figures_of(tree)])


if __name__ == "__main__":
    sys.exit(main())
