from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import embedkit

# Come in with their first use, not with `import embedkit`.
HEAVY = (
    "numpy",
    "sqlite3",
    "tokenizers",
    "safetensors",
    "wordllama",
    "chardet",
    "dulwich",
    "watchfiles",
    "tree_sitter",
)
HEAVY_OF_THE_LIBRARY = ("tomllib", "argparse")


def test_the_names_are_sorted_and_there() -> None:
    assert list(embedkit.__all__) == sorted(set(embedkit.__all__))
    for name in embedkit.__all__:
        assert getattr(embedkit, name) is not None


def test_every_name_that_the_package_imports_from_itself_is_public() -> None:
    tree = ast.parse(Path(embedkit.__file__).read_text(encoding="utf-8"))
    imported = {
        alias.asname or alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("embedkit")
        for alias in node.names
    }
    assert imported <= set(embedkit.__all__)


def test_every_error_that_can_come_out_is_public() -> None:
    found = {embedkit.EmbedkitError}
    todo = [embedkit.EmbedkitError]
    while todo:
        below = [cls for cls in todo.pop().__subclasses__() if cls.__module__ == "embedkit.errors"]
        found.update(below)
        todo.extend(below)
    assert {cls.__name__ for cls in found} <= set(embedkit.__all__)


def test_an_import_is_light() -> None:
    code = "import sys, embedkit; print(*sorted(sys.modules))"
    root = str(Path(embedkit.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True, timeout=60
    )
    loaded = set(done.stdout.split())
    assert "embedkit" in loaded
    assert not loaded.intersection(HEAVY)
    assert not [name for name in loaded if name.startswith("embedkit.knowledge.chunking")]
    assert not loaded.intersection(HEAVY_OF_THE_LIBRARY)
