"""The outline of a text by its language's grammar: what a parser knows, in the terms of ``outline``.

The tree is walked only where it spans lines. A cut lies before what begins a line: a statement, a member, an item of a
list; how many nodes that began on earlier lines enclose it is what the cut costs. Nothing is cut between a
definition's first line and its body, nor before the first statement of a function. Comments, attributes and decorators
go with what stands right below them. A parser that met an error says what it could make of the rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import attrs

from embedkit.knowledge.chunking.outline import LONG_COMMENT, MAX_DEPTH, Definition, Outline
from embedkit.knowledge.chunking.page import Page

if TYPE_CHECKING:
    from tree_sitter import Node

_COMMENTS = frozenset({"comment", "line_comment", "block_comment", "multiline_comment"})
_ATTACHED = _COMMENTS | {"attribute_item", "inner_attribute_item", "decorator", "annotation", "marker_annotation"}
_ATTACHED |= {"attribute_list", "file_annotation"}

# What holds members worth naming.
_HOLDERS = frozenset(
    {"class_declaration", "class", "abstract_class_declaration", "interface_declaration", "enum_declaration"}
    | {"record_declaration", "annotation_type_declaration", "struct_declaration", "namespace_declaration"}
    | {"class_specifier", "struct_specifier", "union_specifier", "enum_specifier", "namespace_definition", "module"}
    | {"internal_module", "struct_item", "enum_item", "union_item", "trait_item", "impl_item", "mod_item"}
    | {"trait_declaration", "object_declaration", "type_spec", "type_definition", "companion_object"}
    | {"file_scoped_namespace_declaration"}
)
_FUNCTIONS = frozenset(
    {"function_definition", "function_declaration", "generator_function_declaration", "method_declaration"}
    | {"method_definition", "constructor_declaration", "compact_constructor_declaration", "function_item", "method"}
    | {"singleton_method", "function_signature_item", "function_signature", "method_signature", "macro_definition"}
    | {"abstract_method_signature", "destructor_declaration", "operator_declaration", "property_declaration"}
    | {"indexer_declaration", "local_function_statement", "delegate_declaration", "event_declaration"}
    | {"conversion_operator_declaration", "preproc_function_def", "secondary_constructor"}
)
_LAMBDAS = frozenset({"arrow_function", "function_expression", "generator_function", "function"})
_CALLABLE = _FUNCTIONS | _LAMBDAS
# What is named from outside: ``const f = () => ...``, ``{ f: function () ... }``, ``a.f = function () ...``.
_NAMING = {
    "variable_declarator": ("name", "value"),
    "public_field_definition": ("name", "value"),
    "field_definition": ("property", "value"),
    "pair": ("key", "value"),
    "assignment_expression": ("left", "right"),
}
_CLASS_VALUES = frozenset({"class", "class_expression"})
_NAMELESS = {"operator_declaration": "operator", "indexer_declaration": "this", "secondary_constructor": "constructor"}
_NAMELESS |= {"companion_object": "Companion", "conversion_operator_declaration": "operator"}
_BODIES = frozenset({"function_body", "class_body", "enum_class_body"})  # where a grammar has no field for them
_ENDS = re.compile(rb"[}\])]|(?:else|elsif|elseif|end|catch|rescue|ensure|finally|when|in)\b(?![ \t]*[=(.])")

_LONGEST_NAME = 120  # bytes
_MAX_LEVEL = 24
_COST = 4
_DEFINITION, _AFTER_BLANK, _PLAIN, _BELOW_COMMENT = 0, 1, 2, 3
_MOST_BROKEN = 0.25  # of the text


def outline(page: Page, root: Node) -> Outline | None:
    """Where the text may be cut and what it defines; ``None`` if the parser could make too little of it."""
    if root.is_error or _broken(root) > _MOST_BROKEN * len(page.data):
        return None
    walk = _Walk(page)
    walk.through(root)
    return Outline(*walk.cuts(), walk.definitions)


def _broken(root: Node) -> int:
    """How many bytes lie in errors, as far as these lie near the top."""
    total = 0
    pending = [(root, 0)] if root.has_error else []
    while pending:
        node, depth = pending.pop()
        for child in node.children:
            if child.is_error:
                total += child.end_byte - child.start_byte
            elif child.has_error and depth < 3:
                pending.append((child, depth + 1))
    return total


@attrs.frozen
class _Inside:
    """A node that is to be walked.

    Attributes:
        node: It spans lines.
        level: How many cuts lie above what is in it.
        holder: Position of the definition that it belongs to, or -1.
        is_body: Whether it is the body of a function.
    """

    node: Node
    level: int
    holder: int
    is_body: bool


class _Walk:
    """One walk through a tree.

    Attributes:
        definitions: In order of their start.
    """

    def __init__(self, page: Page) -> None:
        self.definitions: list[Definition] = []
        self._page = page
        self._first: list[int] = page.first.tolist()
        self._levels: dict[int, int] = {}  # of lines before which a cut makes sense
        self._opening: set[int] = set()  # lines on which a definition begins
        self._attached: dict[int, int] = {}  # lines that go with what stands below them; -1: they begin a body

    def through(self, root: Node) -> None:
        """Visit all that spans lines, without recursion: a text may nest as deep as it likes."""
        pending = [self._children(_Inside(root, 0, -1, False))]
        while pending:
            below = next(pending[-1], None)
            if below is None:
                pending.pop()
            else:
                pending.append(self._children(below))

    def _children(self, inside: _Inside) -> Iterator[_Inside]:
        """Look at each child of a node; those that are to be walked in their turn."""
        node = inside.node
        body = _body(node)
        is_first = inside.is_body
        for child in node.children:
            if body is not None and child.start_byte < body.start_byte:
                if child.type in _ATTACHED:  # Ruby's comments before the first member
                    self._attach(child, inside.level)
                continue  # the head of a definition is not parted
            if child.type in _ATTACHED:
                self._attach(child, -1 if is_first else inside.level)
                continue
            if not child.is_named:
                continue
            if body is not None and child.start_byte == body.start_byte:
                if _end_row(child) > child.start_point[0]:
                    yield _Inside(child, inside.level, inside.holder, node.type in _CALLABLE)
                continue
            if inside.is_body and child.type == "block":  # of Kotlin: the body's own
                yield _Inside(child, inside.level, inside.holder, True)
                continue
            named = _name_of(child)
            level = inside.level
            if not (is_first and named is None):
                level += self._cut(child, level)
            else:
                level += 1
            is_first = False
            holder = inside.holder if named is None else self._define(child, named, inside.holder)
            if _end_row(child) > child.start_point[0]:
                yield _Inside(child, level, holder, False)

    def _attach(self, node: Node, level: int) -> None:
        """Lines that a comment or an attribute fills go with what follows."""
        row, end = node.start_point[0], _end_row(node)
        line_end = int(self._page.starts[end + 1])
        if self._first[row] != node.start_byte or self._page.data[node.end_byte : line_end].strip():
            return
        for line in range(row, end + 1):
            self._attached.setdefault(line, level)

    def _cut(self, node: Node, level: int) -> bool:
        """Allow a cut before a node that begins its line; whether it is a new one."""
        row = node.start_point[0]
        if self._first[row] != node.start_byte or row in self._levels or _ENDS.match(self._page.data, node.start_byte):
            return False
        self._levels[row] = level
        return True

    def _define(self, node: Node, named: _Named, holder: int) -> int:
        name = named.name
        row = node.start_point[0]
        depth = 0
        if holder >= 0:
            outer = self.definitions[holder]
            depth = outer.depth + 1
            name = f"{outer.name}.{name}" if depth < MAX_DEPTH else outer.name
        self._opening.add(row)
        self.definitions.append(
            Definition(row, named.row, depth, name, named.holds_members, _end_row(node), holder, depth)
        )
        return len(self.definitions) - 1

    def cuts(self) -> tuple[list[int], list[int]]:
        """Lines before which a cut makes sense, ascending, and what each costs."""
        after_blank = self._page.after_blank.tolist()
        attached = self._attached
        costs: dict[int, int] = {}
        taken: set[int] = set()
        for row, level in self._levels.items():
            start = row
            while start - 1 in attached:
                start -= 1
                taken.add(start)
            kind = _DEFINITION if row in self._opening else _AFTER_BLANK if after_blank[start] else _PLAIN
            costs[start] = min(level, _MAX_LEVEL) * _COST + kind
            if self._page.weight[row] - self._page.weight[start] >= LONG_COMMENT:
                costs[row] = min(level, _MAX_LEVEL) * _COST + _BELOW_COMMENT
        for line, level in attached.items():
            if level >= 0 and line - 1 not in attached and line not in taken:
                costs[line] = min(level, _MAX_LEVEL) * _COST + (_AFTER_BLANK if after_blank[line] else _PLAIN)
        first = int(self._page.blank.argmin())
        costs.setdefault(first, 0)
        lines = sorted(line for line in costs if line >= first and not self._page.blank[line])
        return lines, [costs[line] for line in lines]


def _end_row(node: Node) -> int:
    """The last line of a node, inclusive: one that ends with its line end does not reach the next."""
    row, column = node.end_point
    return max(row - 1, node.start_point[0]) if column == 0 else row


def _body(node: Node) -> Node | None:
    """Where a definition's head ends."""
    body = node.child_by_field_name("body")
    if body is None and node.type in _DEFINING:
        return next((child for child in node.children if child.type in _BODIES), None)
    return body


@attrs.frozen
class _Named:
    name: str
    row: int
    holds_members: bool


def _name_of(node: Node) -> _Named | None:
    """The name that a node gives to what it defines."""
    kind = node.type
    if kind in _NAMING:
        name, value = (node.child_by_field_name(field) for field in _NAMING[kind])
        if name is None or value is None or not (value.type in _LAMBDAS or value.type in _CLASS_VALUES):
            return None
        return _named(name, value.type in _CLASS_VALUES)
    if kind not in _DEFINING:
        return None
    holds = kind in _HOLDERS
    if kind.endswith("_specifier") and node.child_by_field_name("body") is None:
        return None
    name = node.child_by_field_name("type") if kind == "impl_item" else node.child_by_field_name("name")
    if name is None:
        name = _declared(node)
    if name is None:
        fixed = _NAMELESS.get(kind)
        return None if fixed is None else _Named(fixed, node.start_point[0], holds)
    found = _named(name, holds)
    receiver = node.child_by_field_name("receiver") if kind == "method_declaration" else None
    if found is not None and receiver is not None and (owner := _receiver(receiver)):
        return attrs.evolve(found, name=f"{owner}.{found.name}")
    return found


def _declared(node: Node) -> Node | None:
    """The name inside C's declarators: of ``int *f(int)`` it is ``f``."""
    inner = node.child_by_field_name("declarator")
    for _ in range(MAX_DEPTH):
        if inner is None or inner.child_count == 0 or inner.type in _DECLARED:
            return inner
        below = inner.child_by_field_name("declarator")
        inner = below if below is not None else next((c for c in inner.named_children if "declarator" in c.type), None)
    return None


def _named(name: Node, holds: bool) -> _Named | None:
    text = (name.text or b"")[:_LONGEST_NAME]
    text = text.partition(b"<")[0].strip() if name.type == "generic_type" else text.strip()
    if not text or b"\n" in text:
        return None
    return _Named(text.strip(b"\"'`&").decode("utf-8", "replace"), name.start_point[0], holds)


def _receiver(node: Node) -> str:
    """The type of a Go method's receiver."""
    text = (node.text or b"").strip(b"() \t").partition(b"[")[0]
    return text.split()[-1].lstrip(b"*").decode("utf-8", "replace") if text.split() else ""


_DEFINING = _HOLDERS | _FUNCTIONS
_DECLARED = frozenset({"identifier", "field_identifier", "qualified_identifier", "operator_name", "destructor_name"})
