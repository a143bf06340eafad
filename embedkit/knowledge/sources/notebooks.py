"""Jupyter notebooks as text: cells, and the text that they printed, on the lines where they stand in the file.

A notebook is JSON, nine tenths of it pictures in base64. Jupyter writes each line of a cell on a line of its own, so
the text can keep the file's line numbers: a line of a cell stands where it stood, everything else is blank. A notebook
that is written otherwise (on one line) is given as its cells, one after the other.

The text is that of a Python file in cells, as editors know it: ``# %%`` begins one, prose and output are comments.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

_OUTPUT_LINES: Final = 20  # of each output: the rest is data
_OUTPUT_WIDTH: Final = 200
_LIST = ": ["
_TEXTS = ('"text": [', '"text/plain": [')


def as_text(text: str) -> str:
    """The notebook in ``text``; as it stands, if it is none.

    The JSON is parsed only to see that it is a notebook, and of what shape; ``text`` is bounded by the largest file
    that is indexed.
    """
    try:
        notebook = json.loads(text)
    except (ValueError, RecursionError):
        return text
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    if not isinstance(cells, list):
        return text
    lines = text.split("\n")
    return _in_place(lines) if len(lines) > len(cells) * 3 else "\n".join(_rendered(cells)) + "\n"


def _in_place(lines: list[str]) -> str:
    """Each line of a cell in the line of the file that it stands in."""
    shown: list[str] = []
    kind = "code"
    mark: str | None = None  # what stands before each line of the list that is open; ``None``: no list is
    left = 0
    for line in lines:
        here = line.strip()
        if mark is not None:
            if here in ("]", "],"):
                mark = None
                shown.append("")
            else:
                left -= 1
                shown.append(_shown(here, mark) if left >= 0 else "")
            continue
        if here.startswith('"cell_type":'):
            kind = "code" if '"code"' in here else "markdown"
            shown.append("# %%" if kind == "code" else "# %% [markdown]")
        elif here.startswith('"source":'):
            mark, left = ("" if kind == "code" else "# "), len(lines)
            if not here.endswith(_LIST):
                shown.append(_shown(here.partition(":")[2].strip(), mark))
                mark = None
            else:
                shown.append("")
        elif here in _TEXTS:
            mark, left = "# ", _OUTPUT_LINES
            shown.append("")
        else:
            shown.append("")
    return "\n".join(shown)


def _shown(item: str, mark: str) -> str:
    """A JSON string in one line of text."""
    try:
        value = json.loads(item.removesuffix(","))
    except ValueError:
        return ""
    if not isinstance(value, str):
        return ""
    value = value.removesuffix("\n").replace("\n", " ")
    return (mark + (value[:_OUTPUT_WIDTH] if mark else value)).rstrip() if value.strip() else ""


def _rendered(cells: list[Any]) -> Iterator[str]:
    for cell in cells:
        if not isinstance(cell, dict):
            continue
        is_code = cell.get("cell_type") == "code"
        yield "# %%" if is_code else "# %% [markdown]"
        for line in _joined(cell.get("source")).split("\n"):
            yield line if is_code else f"# {line}".rstrip()
        for output in cell.get("outputs") or () if is_code else ():
            if not isinstance(output, dict):
                continue
            data = output.get("data")
            told = output.get("text") or (data.get("text/plain") if isinstance(data, dict) else None)
            for line in _joined(told).split("\n")[:_OUTPUT_LINES] if told else ():
                yield f"# {line[:_OUTPUT_WIDTH]}".rstrip()


def _joined(source: object) -> str:
    if isinstance(source, list):
        return "".join(line for line in source if isinstance(line, str))
    return source if isinstance(source, str) else ""
