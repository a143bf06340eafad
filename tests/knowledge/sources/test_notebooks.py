"""Notebooks: cells as text, on their own lines; pictures are no text (sanity#19: 98 % of the chunks were base64)."""

from __future__ import annotations

import base64
import json
import random
from typing import Any

import pytest

from embedkit.knowledge.chunking import chunk
from embedkit.knowledge.sources.notebooks import as_text

PICTURE = base64.b64encode(random.Random(1).randbytes(60_000)).decode()


def a_notebook() -> dict[str, Any]:
    return {
        "cells": [
            {"cell_type": "markdown", "metadata": {}, "source": ["# A title\n", "\n", "Some words: don't panic."]},
            {
                "cell_type": "code", "execution_count": 1, "metadata": {"tags": ["x"]},
                "outputs": [
                    {"name": "stdout", "output_type": "stream", "text": [f"line {n}\n" for n in range(100)]},
                    {
                        "data": {"image/png": PICTURE, "text/plain": ["<Figure size 640x480>"]},
                        "metadata": {}, "output_type": "display_data",
                    },
                ],
                "source": ["import numpy as np\n", "\n", "def load(path):\n", '    return np.load("a\\n")'],
            },
            {"cell_type": "code", "metadata": {}, "outputs": [], "source": "one_line = 1"},
        ],
        "metadata": {"language_info": {"name": "python"}}, "nbformat": 4, "nbformat_minor": 5,
    }  # fmt: skip


@pytest.mark.parametrize("indent", [1, 2, None])
def test_cells_and_printed_text_are_kept_and_pictures_are_not(indent: int | None) -> None:
    text = as_text(json.dumps(a_notebook(), indent=indent))
    inked = [line for line in text.split("\n") if line]
    assert [line for line in inked if line != "#"][:3] == [
        "# %% [markdown]", "# # A title", "# Some words: don't panic.",
    ]  # fmt: skip
    assert [line for line in inked if not line.startswith("#")] == [
        "import numpy as np", "def load(path):", '    return np.load("a\\n")', "one_line = 1",
    ]  # fmt: skip
    assert "# line 0" in inked
    assert sum(line.startswith("# line ") for line in inked) == 20
    assert "# <Figure size 640x480>" in inked
    assert PICTURE[:20] not in text


def test_lines_are_those_of_the_file() -> None:
    raw = json.dumps(a_notebook(), indent=1)
    shown, written = as_text(raw).split("\n"), raw.split("\n")
    assert len(shown) == len(written)
    assert "def load(path)" in written[shown.index("def load(path):")]


def test_no_chunk_is_base64() -> None:
    pieces = chunk("a.ipynb", as_text(json.dumps(a_notebook(), indent=1)))
    assert "load" in [piece.scope for piece in pieces] or any("def load" in piece.text for piece in pieces)
    assert all(len(line) < 300 for piece in pieces for line in piece.text.split("\n"))


@pytest.mark.parametrize(
    "text", ["", "no json", "[1]", '{"cells": 3}', '{"cells": [1, null, {"source": 4}]}', "[" * 100_000]
)
def test_what_is_no_notebook_is_text_or_nothing(text: str) -> None:
    assert isinstance(as_text(text), str)
