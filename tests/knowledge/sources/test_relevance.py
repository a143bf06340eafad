"""What wakes a watch (cartog#43: churn in an ignored folder made ten syncs in ten seconds)."""

from __future__ import annotations

from pathlib import Path

from fakes import write_tree

from embedkit.knowledge.sources.relevance import Relevance
from embedkit.knowledge.sources.selection import Selection


def test_what_is_ignored_wakes_nobody(tmp_path: Path) -> None:
    write_tree(tmp_path, {".gitignore": "build/\n*.log\n", "src/.ignore": "gen\n", "src/gen/a.py": "", "src/a.py": ""})
    relevance = Relevance(tmp_path, Selection())
    for path, matters in {
        "src/a.py": True,
        "src/new.py": True,
        "src/gone.py": True,
        "build/out.js": False,
        "build": False,
        "a.log": False,
        "src/gen/a.py": False,
        "src/gen": False,
        "node_modules/a/b.js": False,
        ".git/index": False,
        ".embedkit/store": False,
        ".env": False,
        ".gitignore": True,
        "": True,
    }.items():
        assert relevance.any_of([tmp_path / path]) is matters, path
    assert not relevance.any_of([tmp_path.parent / "elsewhere.py"])


def test_an_ignore_file_that_changes_is_read_again(tmp_path: Path) -> None:
    write_tree(tmp_path, {"sub/.gitignore": "*.log\n", "sub/a.log": "", "sub/b.txt": ""})
    relevance = Relevance(tmp_path, Selection())
    assert not relevance.any_of([tmp_path / "sub" / "a.log"])
    (tmp_path / "sub" / ".gitignore").write_text("*.txt\n")
    assert relevance.any_of([tmp_path / "sub" / ".gitignore"])
    assert relevance.any_of([tmp_path / "sub" / "a.log"])
    assert not relevance.any_of([tmp_path / "sub" / "b.txt"])


def test_only_what_is_included_wakes(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a.py": "", "a.md": "", "docs/b.txt": ""})
    relevance = Relevance(tmp_path, Selection(include=("*.py", "docs/"), exclude=("!dist/",)))
    assert [relevance.any_of([tmp_path / path]) for path in ("a.py", "a.md", "docs/b.txt", "dist/a.py")] == [
        True, False, True, True,
    ]  # fmt: skip
