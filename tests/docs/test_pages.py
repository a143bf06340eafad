"""The pages are complete: every public name, every error, every command and flag, and no dead link."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from types import ModuleType

import pytest
from pages import PAGES, ROOT

import embedkit
import embedkit.testing
from embedkit import errors
from embedkit.errors import EmbedkitError
from embedkit.surfaces.arguments import make_parser

BRANCHES = {"EmbedkitError", "AdmissionError", "ProviderError"}


def page(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def commands() -> dict[str, argparse.ArgumentParser]:
    (choices,) = (action.choices for action in make_parser()._actions if isinstance(action.choices, dict))
    return choices


def test_public_names_are_sorted_and_there() -> None:
    assert embedkit.__all__ == sorted(set(embedkit.__all__))
    assert all(hasattr(embedkit, name) for name in embedkit.__all__)


@pytest.mark.parametrize("module", [embedkit, embedkit.testing], ids=lambda module: module.__name__)
def test_the_reference_has_every_public_name_once(module: ModuleType) -> None:
    name = re.escape(module.__name__)
    written = re.findall(rf"^\.\. auto(?:class|function|data):: {name}\.(\w+)$", page("docs/reference.md"), re.M)
    assert sorted(written) == module.__all__


def test_every_public_name_says_what_it_is() -> None:
    assert [name for name in embedkit.__all__ if not getattr(embedkit, name).__doc__] == []


def test_the_table_of_codes_is_what_the_classes_say() -> None:
    yes = {True: "yes", False: "no"}
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, EmbedkitError)]
    rows = [
        f"| `{kind.__name__}` | `{kind('what').durable_code}` | {yes[kind.retryable]} | {yes[kind.deferrable]} |"
        for kind in kinds
        if kind.__name__ not in BRANCHES
    ]
    assert re.findall(r"^\| `\w+` \| `KB_.*$", page("docs/errors.md"), re.M) == rows


def test_every_command_and_flag_is_described() -> None:
    text = page("docs/command-line.md")
    assert re.findall(r"^## ([a-z]+)$", text, re.M) == list(commands())
    for parser in commands().values():
        for flag in (flag for action in parser._actions for flag in action.option_strings):
            assert re.search(rf"[`\[| ]{flag}[`\], ]", text), f"{parser.prog} {flag}"


@pytest.mark.parametrize("name", ["README.md", "docs/command-line.md"])
def test_the_list_of_commands_that_exist_is_right(name: str) -> None:
    sentence = re.search(r"commands that exist now are ([^.]+)\.", page(name).replace("\n", " "))
    assert sentence is not None
    assert re.findall(r"`(\w+)`", sentence[1]) == list(commands())


def test_readme_begins_with_the_two_commands() -> None:
    first_screen = page("README.md")[:1500]
    assert "make demo" in first_screen
    assert "make test" in first_screen


@pytest.mark.parametrize("path", [*PAGES, ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md"], ids=lambda path: path.name)
def test_links_to_files_lead_somewhere(path: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", path.read_text("utf-8"))
    assert [link for link in links if not (path.parent / link).exists()] == []


def test_contributing_has_every_make_target() -> None:
    (phony,) = re.findall(r"^\.PHONY: (.+)$", page("Makefile"), re.M)
    assert set(re.findall(r"^\| `make ([\w-]+)` ", page("CONTRIBUTING.md"), re.M)) == set(phony.split())
