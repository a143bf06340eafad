"""Code and data of every other language, by what nearly all of it shares: indentation and blank lines.

A grammar for each language would be exact and endless. Formatted code shows its structure in how far its lines are
indented; where an opening and a closing line have the same indentation, the closing one is no place to cut. A list of
patterns names what common languages define, for the scope. Text that is not indented is cut at blank lines, then
between any two lines.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from embedkit.knowledge.chunking.outline import LONG_COMMENT, Definition, Outline, nest
from embedkit.knowledge.chunking.page import Page

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_DATA = frozenset(
    {"json", "jsonl", "ndjson", "yaml", "yml", "toml", "ini", "cfg", "conf", "csv", "tsv", "xml", "html", "htm", "svg"}
    | {"log", "lock", "properties", "env", "diff", "patch", "po", "pot", "tex", "bib", "geojson", "xhtml"}
)
_HASH_COMMENTS = frozenset(
    {"sh", "bash", "zsh", "fish", "rb", "pl", "pm", "r", "jl", "ex", "exs", "yaml", "yml", "toml", "tf", "nix", "ps1"}
    | {"cmake", "mk", "makefile", "dockerfile", "cfg", "conf", "ini", "properties", "env", "tcl", "awk", "nim", "cr"}
)
_DASH_COMMENTS = frozenset({"sql", "lua", "hs", "elm", "ada", "adb", "ads", "vhd"})

# A line that closes what a line above it opened, or goes on with it.
_CLOSES = re.compile(
    rb"[})\]{]|</|(?:end|else|elif|elsif|elseif|fi|done|esac|then|catch|rescue|ensure|finally|do|begin)\b"
    rb"(?![ \t]*[=(.])"
)
_CLOSES_DATA = re.compile(rb"[})\]]|</")
_BLOCK_COMMENT = re.compile(rb"^[ \t]*+/\*(?s:.*?)(?:\*/|\Z)", re.MULTILINE)

_READ = 240  # bytes of a line that are looked at for a definition, so that no line makes a pattern slow
_WORD = rb"[A-Za-z_$\x80-\xff][\w$\x80-\xff]*"
_MODIFIERS = (
    rb"(?:(?:export|default|declare|public|private|protected|internal|static|final|abstract|sealed|partial|async|unsafe"
    rb"|const|extern|inline|virtual|override|open|data|suspend|local|typedef|template|noexcept|constexpr|fileprivate"
    rb"|pub(?:\([^)]{0,40}\))?|extern[ \t]+\"C\"|@\w+)[ \t]+){0,6}"
)
_KEYWORD = re.compile(
    _MODIFIERS
    + rb"(class|struct|enum|union|interface|trait|impl|mod|module|namespace|protocol|extension|object|record|package"
    rb"|fn|func|function|def|fun|sub|proc|macro_rules!|type|defmodule|defp|defmacro)\b"
    rb"[ \t*]*(?:<[^<>]{0,80}>[ \t]*)?(?:\([^()]{0,80}\)[ \t]*)?(" + _WORD + rb"(?:(?:\.|::|:)" + _WORD + rb"){0,6})"
)
_HOLDERS = frozenset(
    {b"class", b"struct", b"enum", b"union", b"interface", b"trait", b"impl", b"mod", b"module", b"namespace"}
    | {b"protocol", b"extension", b"object", b"record", b"package", b"defmodule"}
)
_ASSIGNED = re.compile(
    rb"(?:export[ \t]+)?(?:const|let|var)[ \t]+(" + _WORD + rb")[ \t]*(?::[^=]{0,80})?=[ \t]*"
    rb"(?:async[ \t]*)?(?:function\b|\([^()]{0,160}\)[ \t]*(?::[^=]{0,60})?=>|" + _WORD + rb"[ \t]*=>|class\b)"
)
_CREATE = re.compile(
    rb"(?i:create(?:[ \t]+or[ \t]+replace)?(?:[ \t]+(?:temp|temporary|unique|materialized))?[ \t]+"
    rb"(?:table|view|function|procedure|index|trigger|type|schema)(?:[ \t]+if[ \t]+not[ \t]+exists)?)[ \t]+([\w.\"`]+)"
)
# What no callable's line begins with, and what no line that declares one without its brace begins with.
_NO_CALLABLE = re.compile(
    rb"(?:if|for|while|switch|return|else|do|case|when|until|foreach|catch|sizeof|throw|new|await|yield|print|assert)\b"
)
_NO_TYPE = re.compile(rb"(?:return|else|typedef|throw|new|case|goto|delete)\b")
_NAME = re.compile(rb"(?:" + _WORD + rb"::){0,4}~?" + _WORD)
_NAME_BYTES = bytes(byte for byte in range(256) if byte >= 0x80 or chr(byte).isalnum()) + b"_$:~"
_TYPE_BYTES = _NAME_BYTES + b"<>,*&[]?#. \t"
_MOST_WORDS = 24  # before a name
_MOST_GENERIC = 80  # bytes of ``<...>`` behind a name
_DEEPEST = 48  # columns: what is indented further is given no name
_ARROW = re.compile(
    _MODIFIERS + rb"(" + _WORD + rb")[ \t]*(?::[^=]{0,80})?[=:][ \t]*(?:async[ \t]*)?"
    rb"(?:\([^()]{0,160}\)|" + _WORD + rb")[ \t]*(?::[^=]{0,60})?=>"
)
_VALUE = re.compile(
    rb"(?:(?:this|module|exports|" + _WORD + rb")\.){0,4}(" + _WORD + rb")[ \t]*[=:][ \t]*(?:async[ \t]+)?function\b"
)
_RUBY = re.compile(rb"(?:(?:private|protected|public|module_function)[ \t]+)?def[ \t]+(?:self\.)?([^\s(;]{1,80})")
_RUBY_KIN = frozenset({"rb", "rake", "gemspec", "cr"})
_IMPLEMENTED = re.compile(
    rb"[ \t]for[ \t]+(?:&(?:'\w+[ \t]+)?)?(?:mut[ \t]+|dyn[ \t]+)*+(?:" + _WORD + rb"::)*+(" + _WORD + rb")"
)
_SCRIPTS = frozenset({"js", "jsx", "mjs", "cjs", "ts", "tsx", "mts", "cts"})
# What begins an annotation, and where it is none: a rule of CSS, a keyword of Objective-C.
_ANNOTATIONS = dict.fromkeys(("java", "kt", "kts", "scala", "groovy", "swift", "dart", *_SCRIPTS), b"@")
_ANNOTATIONS |= {"rs": b"#[", "php": b"#[", "cs": b"["}
_ANNOTATION = re.compile(rb"@[\w.:]+[ \t]*|#!?(?=\[)|(?=\[[ \t]*[A-Za-z_])")
_ANNOTATION_LINES = 20
_OPENS_BRACKET, _CLOSES_BRACKET = b"([{", b")]}"
_WRAPPING = frozenset({"java", "cs", "php", "c", "h", "cc", "hh", "cpp", "hpp", "cxx", "hxx", "dart", *_SCRIPTS})
_C_KIN = frozenset({"c", "h", "cc", "hh", "cpp", "hpp", "cxx", "hxx", "m", "mm", "cu", "ino", "java", "cs", "d"})
_MAX_LEVEL = 24  # half columns of two
_COST = 4
_DEFINITION, _AFTER_BLANK, _PLAIN, _BELOW_COMMENT = 0, 1, 2, 3


def outline(page: Page, suffix: str) -> Outline:
    """Where a text may be cut by its indentation; what it defines, where ``suffix`` does not say it is data."""
    import numpy as np

    comments = _comments(page, suffix)
    _add_annotations(page, suffix, comments)
    first_bytes = page.first
    ink = np.flatnonzero(~page.blank)
    code = ink[~comments[ink]]
    raw = np.frombuffer(page.data, np.uint8)
    closes = _CLOSES_DATA if suffix in _DATA else _CLOSES
    closing = np.array(
        [line for line, offset in _candidates(raw, code, first_bytes) if closes.match(page.data, offset)],
        np.int64,
    )
    code = code[~np.isin(code, closing)]
    is_code = suffix not in _DATA and (suffix != "" or page.data.startswith(b"#!"))
    openings, types = _openings(page, code, suffix) if is_code else ({}, [])
    if types:
        comments[types] = True  # a type on a line of its own goes with the name below it
        code = code[~np.isin(code, types)]
    cuts, costs = _cuts(page, code, comments, openings)
    return Outline(cuts, costs, _definitions(page, code, comments, openings))


def _candidates(raw: NDArray[np.uint8], lines: NDArray[np.int64], first: NDArray[np.int64]) -> list[tuple[int, int]]:
    import numpy as np

    chosen = lines[np.isin(raw[first[lines]], list(b"})]{<efdtcrb"))]
    return list(zip(chosen.tolist(), first[chosen].tolist(), strict=True))


def _comments(page: Page, suffix: str) -> NDArray[np.bool_]:
    """Which lines hold a comment only."""
    import numpy as np

    found = np.zeros(page.count, np.bool_)
    if suffix in _DATA and suffix not in _HASH_COMMENTS:
        return found
    mark = b"#" if suffix in _HASH_COMMENTS else b"--" if suffix in _DASH_COMMENTS else b"//"
    raw = np.frombuffer(page.data, np.uint8)
    begins = page.first[~page.blank]
    here = raw[begins] == mark[0]
    if len(mark) == 2:
        here &= raw[np.minimum(begins + 1, len(raw) - 1)] == mark[1]
    found[np.flatnonzero(~page.blank)[here]] = True
    if mark != b"#":
        for match in _BLOCK_COMMENT.finditer(page.data):
            low, high = np.searchsorted(page.starts, match.span(), side="right") - 1
            found[low : high + 1] = True
    return found & ~page.blank


def _add_annotations(page: Page, suffix: str, comments: NDArray[np.bool_]) -> None:
    """Annotations that stand on lines of their own go with what follows them, as comments do."""
    import numpy as np

    mark = _ANNOTATIONS.get(suffix)
    if mark is None:
        return
    raw = np.frombuffer(page.data, np.uint8)
    inked = np.flatnonzero(~page.blank & ~comments)
    after = -1
    for line in inked[raw[page.first[inked]] == mark[0]].tolist():
        if line >= after and (end := _annotation_end(page, line)) > line:
            comments[line:end] = ~page.blank[line:end]
            after = end


def _annotation_end(page: Page, line: int) -> int:
    """The line after an annotation that fills its lines; ``line`` itself if there is none, or code after it."""
    begin, end = int(page.first[line]), int(page.starts[line + 1])
    match = _ANNOTATION.match(page.data, begin, min(end, begin + _READ))
    if match is None:
        return line
    depth, at = 0, match.end()
    for here in range(line, min(line + _ANNOTATION_LINES, page.count)):
        for offset in range(at, min(int(page.starts[here + 1]), at + _READ)):
            sign = page.data[offset]
            if sign in _OPENS_BRACKET:
                depth += 1
            elif sign in _CLOSES_BRACKET:
                depth -= 1
            elif depth == 0 and sign not in b" \t\r\n":
                return line
        if depth <= 0:
            return here + 1
        at = int(page.starts[here + 1])
    return line


def _openings(page: Page, lines: NDArray[np.int64], suffix: str) -> tuple[dict[int, Definition], list[int]]:
    """The lines that define something; and those that hold the type of what the next line names."""
    found: dict[int, Definition] = {}
    types: list[int] = []
    rows = zip(
        lines.tolist(),
        page.first[lines].tolist(),
        page.starts[lines + 1].tolist(),
        page.indent[lines].tolist(),
        strict=True,
    )
    before, before_line = b"", -1
    for line, begin, end, indent in rows:
        text = page.data[begin : min(end - 1, begin + _READ)]
        if indent <= _DEEPEST:
            named = _named(text, suffix, typed=suffix in _C_KIN and (indent == 0 or _is_brace(page, line + 1)))
            if named is None and suffix in _WRAPPING:
                named = _wrapped(page, line, text, indent, suffix)
            if suffix in _C_KIN and indent == 0 and before_line == line - 1 and _is_type(before):
                called = _called(b"int " + text, typed=True)
                if called is not None and named in (None, (called, False)):
                    named = (called, False)
                    types.append(before_line)
            if named is not None:
                name, holds = named
                found[line] = Definition(line, line, indent, name.decode("utf-8", "replace"), holds)
        before, before_line = (text, line) if indent == 0 else (b"", -1)
    return found, types


def _is_brace(page: Page, line: int) -> bool:
    """Whether a line holds an opening brace alone, or begins a body that is an expression, as C# has them."""
    if line >= page.count:
        return False
    begin, end = int(page.first[line]), int(page.starts[line + 1])
    return page.data.startswith(b"=>", begin, end) or page.data[begin : min(end, begin + _READ)].rstrip() == b"{"


def _is_type(text: bytes) -> bool:
    """Whether a line of C may be the type of what the next one names, as GNU writes it."""
    return bool(text) and not text.strip(_TYPE_BYTES + b"\r") and not _NO_TYPE.match(text) and b":" not in text


def _wrapped(page: Page, line: int, text: bytes, indent: int, suffix: str) -> tuple[bytes, bool] | None:
    """A function whose parameters stand on several lines: its head, joined, is looked at as one line."""
    depth = text.count(b"(") - text.count(b")")
    if depth < 1 or _NO_CALLABLE.match(text) or _NO_TYPE.match(text):
        return None
    parts = [text.rstrip()]
    for below in range(line + 1, min(line + _ANNOTATION_LINES, page.count)):
        if page.blank[below]:
            return None
        begin = int(page.first[below])
        part = page.data[begin : min(int(page.starts[below + 1]), begin + _READ)].rstrip()
        inner = int(page.indent[below])
        if inner < indent or (inner == indent and not part.startswith(b")")):
            return None
        parts.append(part)
        depth += part.count(b"(") - part.count(b")")
        if depth <= 0:
            if _is_brace(page, below + 1):
                parts.append(b"{")
            return _named(b" ".join(parts), suffix, typed=False)
    return None


def _named(text: bytes, suffix: str, *, typed: bool) -> tuple[bytes, bool] | None:
    """The name that a line defines, and whether what it names holds members."""
    if suffix in _RUBY_KIN and (match := _RUBY.match(text)):
        return match[1], False
    match = _KEYWORD.match(text)
    if match and match[1] == b"impl" and (implemented := _IMPLEMENTED.search(text, match.start(2))):
        return implemented[1], True
    if match:
        return (match[2], match[1] in _HOLDERS) if not text.rstrip().endswith(b";") else None
    patterns = (_ASSIGNED, _ARROW, _VALUE) if suffix in _SCRIPTS else (_ASSIGNED, _CREATE)
    for pattern in patterns:
        match = pattern.match(text)
        if match:
            return match[1].strip(b'"`'), False
    name = _called(text, typed=typed)
    return None if name is None else (name, False)


def _called(text: bytes, *, typed: bool) -> bytes | None:
    """The name of a function that a line declares: ``name(...) {`` in C and its kin, Java, JavaScript and shells.

    With ``typed`` (C's kin alone) the brace may stand on a later line, if a type stands before the name. Not a regular
    expression: one that says the same takes exponential time on a row of stars.
    """
    head, paren, rest = text.partition(b"(")
    if not paren:
        return None
    head = head.rstrip(b" \t")
    if head.endswith(b">"):  # type parameters behind a name
        head = head[: head.find(b"<", max(0, len(head) - _MOST_GENERIC))].rstrip(b" \t")
    before = head.rstrip(_NAME_BYTES)
    name = head[len(before) :]
    if not _NAME.fullmatch(name) or before.strip(_TYPE_BYTES) or before.rstrip(b" \t*&#") == before != b"":
        return None
    if len(before.split()) > _MOST_WORDS:
        return None
    after = _after_parameters(rest)
    if after is None:
        return name if typed and before and not _NO_TYPE.match(text) and not _first_of(rest, b";=\"'") else None
    if not _NO_CALLABLE.match(text) and _first_of(after, b";=\"'{") == b"{":
        return name
    if before and not _NO_TYPE.match(text):
        if typed and not _first_of(after, b";=\"'"):
            return name
        if after.lstrip().startswith(b"=>"):  # C#'s short form
            return name
    return None


def _after_parameters(rest: bytes) -> bytes | None:
    """What stands behind the bracket that closes the parameters; ``None`` if it is not in this line."""
    depth, at = 1, 0
    while depth:
        closing = rest.find(b")", at)
        if closing < 0:
            return None
        depth += rest.count(b"(", at, closing) - 1
        at = closing + 1
    return rest[at:]


def _first_of(text: bytes, signs: bytes) -> bytes:
    """The first byte of ``text`` that is one of ``signs``; empty if none is."""
    found = min((at for at in map(text.find, (bytes([sign]) for sign in signs)) if at >= 0), default=-1)
    return text[found : found + 1] if found >= 0 else b""


def _definitions(
    page: Page, code: NDArray[np.int64], comments: NDArray[np.bool_], openings: dict[int, Definition]
) -> list[Definition]:
    import numpy as np

    if not openings:
        return []
    rows = zip(code.tolist(), page.indent[code].tolist(), strict=True)
    found = nest(((line, level, openings.get(line)) for line, level in rows), page.count - 1, ".")
    inked = np.where(page.blank | comments, 0, np.arange(page.count))
    last = np.maximum.accumulate(inked).tolist()
    for definition in found:
        definition.end = max(definition.start, last[definition.end])
    return found


def _cuts(
    page: Page, code: NDArray[np.int64], comments: NDArray[np.bool_], openings: dict[int, Definition]
) -> tuple[list[int], list[int]]:
    import numpy as np

    level = np.minimum(page.indent // 2, _MAX_LEVEL) * _COST
    cost = np.full(page.count, -1, np.int64)
    starts = code
    if comments.any():
        heads = np.flatnonzero(comments & ~np.concatenate(([False], comments[:-1])))
        cost[heads] = level[heads] + np.where(page.after_blank[heads], _AFTER_BLANK, _PLAIN)
        above = np.maximum.accumulate(np.where(comments, -1, np.arange(page.count)))
        starts = code.copy()
        attached = (code > 0) & comments[np.maximum(code - 1, 0)]
        starts[attached] = above[code[attached] - 1] + 1
    kind = np.where(page.after_blank[starts], _AFTER_BLANK, _PLAIN)
    kind[np.isin(code, list(openings))] = _DEFINITION
    weight = np.asarray(page.weight)
    below = code[weight[code] - weight[starts] >= LONG_COMMENT]
    cost[below] = level[below] + _BELOW_COMMENT
    cost[starts] = level[code] + kind
    first = int(np.argmin(page.blank))
    cost[first] = max(0, int(cost[first]))
    cuts = np.flatnonzero(cost >= 0)
    return cuts.tolist(), cost[cuts].tolist()
