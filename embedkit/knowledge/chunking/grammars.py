"""Which grammar reads which text: tree-sitter's, where the ``languages`` extra is installed.

Each grammar comes in a wheel of its own. A text is cut by its language's grammar if that wheel is there, and by
indentation if it is not, so what cut a text is part of its chunking generation: ``fingerprint`` names the grammar and
its version. Installing the extra, or a newer grammar, cuts the texts of that language again, and no others.

A parser over foreign text must be bounded. tree-sitter's own work is in proportion to the text for all but broken
text, where recovering may take time and memory that grow with its square (32 KiB of ``a<a<a<`` take 2 GB in C#'s
grammar). Steps are therefore counted, not seconds, so that every machine gives up at the same point; a text whose
parse needs more than sources do, or is larger than sources are, is cut by indentation.
"""

from __future__ import annotations

import zlib
from functools import cache
from importlib import import_module, metadata
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from tree_sitter import Language, Node

MOST_BYTES = 256 * 1024
"""A larger text is cut by indentation: it is data or generated, and its parse would hold the interpreter for long."""

FINGERPRINTS = 1 << 16
"""Fingerprints are below it, and above 0."""

_OUTLINE_VERSION = 1
"""Raised whenever ``parsed`` makes another outline of the same tree."""

# tree-sitter reports every 100 operations. Sources need one report for 36 bytes (all numbers and brackets) to 800.
_BYTES_A_STEP = 24
_LEAST_STEPS = 50
_WHILE_BROKEN = 4  # a report after an error stands for so many: recovering weighs several ways to go on
_READ = 4096  # bytes that are handed over at once
_RUNTIME = "tree-sitter"


@attrs.frozen
class Grammar:
    """One grammar of the extra.

    Attributes:
        distribution: The wheel that carries it; its module has the same name with underscores.
        function: What of the module gives the language.
    """

    distribution: str
    function: str = "language"


_GO = Grammar("tree-sitter-go")
_C = Grammar("tree-sitter-c")
_CPP = Grammar("tree-sitter-cpp")
_JAVASCRIPT = Grammar("tree-sitter-javascript")
_TYPESCRIPT = Grammar("tree-sitter-typescript", "language_typescript")
_TSX = Grammar("tree-sitter-typescript", "language_tsx")
_JAVA = Grammar("tree-sitter-java")
_RUST = Grammar("tree-sitter-rust")
_CSHARP = Grammar("tree-sitter-c-sharp")
_RUBY = Grammar("tree-sitter-ruby")
_PHP = Grammar("tree-sitter-php", "language_php")
_KOTLIN = Grammar("tree-sitter-kotlin")

GRAMMARS = {
    "go": _GO,
    "c": _C,
    "h": _C,
    **dict.fromkeys(("cc", "cpp", "cxx", "hh", "hpp", "hxx", "ipp", "inl"), _CPP),
    **dict.fromkeys(("js", "jsx", "mjs", "cjs"), _JAVASCRIPT),
    **dict.fromkeys(("ts", "mts", "cts"), _TYPESCRIPT),
    "tsx": _TSX,
    "java": _JAVA,
    "rs": _RUST,
    "cs": _CSHARP,
    **dict.fromkeys(("rb", "rake", "gemspec"), _RUBY),
    "php": _PHP,
    **dict.fromkeys(("kt", "kts"), _KOTLIN),
}
"""By suffix. Python is not among them: its own outline is as exact, and needs nothing."""


@attrs.frozen(eq=False)
class _Loaded:
    language: Language
    fingerprint: int


def fingerprint(suffix: str) -> int:
    """What names the grammar that cuts texts of this suffix, 1 to 65535; 0 where indentation does."""
    grammar = GRAMMARS.get(suffix)
    loaded = None if grammar is None else _load(grammar)
    return 0 if loaded is None else loaded.fingerprint


def parse(suffix: str, data: bytes) -> Node | None:
    """The root of a text's syntax tree; ``None`` if there is no grammar for it, or it is not for a grammar to read."""
    grammar = GRAMMARS.get(suffix)
    loaded = None if grammar is None or len(data) > MOST_BYTES else _load(grammar)
    if loaded is None:
        return None
    from tree_sitter import Parser

    left = _LEAST_STEPS + len(data) // _BYTES_A_STEP

    def is_over(_offset: int, is_broken: bool) -> bool:
        nonlocal left
        left -= _WHILE_BROKEN if is_broken else 1
        return left < 0

    try:
        # A parser for each text: threads prepare texts side by side, and one that gave up holds what it had.
        tree = Parser(loaded.language).parse(lambda offset, _: data[offset : offset + _READ], progress_callback=is_over)
    except ValueError:  # it gave up
        return None
    return tree.root_node


def load_language(grammar: Grammar) -> Language | None:
    """The grammar itself, if its wheel is installed and the runtime can read it."""
    loaded = _load(grammar)
    return None if loaded is None else loaded.language


@cache
def _load(grammar: Grammar) -> _Loaded | None:
    """The grammar, if its wheel is installed and the runtime can read it."""
    try:
        from tree_sitter import Language

        module = import_module(grammar.distribution.replace("-", "_"))
        language = Language(getattr(module, grammar.function)())
        versions = [metadata.version(name) for name in (grammar.distribution, _RUNTIME)]
    except (ImportError, AttributeError, ValueError):  # not there, or of a version that the runtime cannot read
        return None
    name = " ".join([grammar.distribution, grammar.function, *versions, str(_OUTLINE_VERSION)])
    return _Loaded(language, zlib.crc32(name.encode()) % (FINGERPRINTS - 1) + 1)
