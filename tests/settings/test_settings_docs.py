from __future__ import annotations

import re
import tomllib
from pathlib import Path

import attrs
import pytest

from embedkit.settings import KINDS, Settings
from embedkit.settings.fields import Leaf
from embedkit.settings.nearest import known_keys
from embedkit.settings.redaction import shown
from embedkit.settings.structure import settings_from

PAGE = Path(__file__).parents[2] / "docs" / "settings.md"
CELLS = re.compile(
    r"^\| `(?P<key>[^`]+)` \| (?P<accepts>[^|]+) \| (?P<default>[^|]+) \| (?P<meaning>[^|]+) \|$", re.MULTILINE
)


def default_in_words(attribute: attrs.Attribute[object], leaf: Leaf) -> str:
    if leaf.required:
        return "required"
    if leaf.default is not None:
        return leaf.default
    return "none" if attribute.default is None else f"`{shown(attribute.default)}`"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def test_the_reference_is_what_the_classes_say() -> None:
    written = [match.group("key", "accepts", "default", "meaning") for match in CELLS.finditer(PAGE.read_text("utf-8"))]
    assert written == [
        (pattern, leaf.rule.expects, default_in_words(attribute, leaf), leaf.meaning)
        for pattern, attribute, leaf in known_keys()
    ]


@pytest.mark.parametrize("text", blocks("toml"))
def test_every_settings_example_is_accepted(text: str) -> None:
    assert isinstance(settings_from(tomllib.loads(text)), Settings)


@pytest.mark.parametrize("source", blocks("python"))
def test_every_code_example_runs(source: str) -> None:
    exec(compile(source, str(PAGE), "exec"), {})


def test_the_table_of_kinds_is_what_the_kinds_say() -> None:
    text = PAGE.read_text("utf-8")
    for name, kind in KINDS.items():
        needs = ", ".join(f"`{key}`" for key in kind.needs) or "nothing" + ", not even a section" * (name == "local")
        given = [f"`{value}` " if value else "" for value in (kind.base_url, kind.api_key_env)]
        yes = {True: "yes", False: "no"}
        row = f"| `{name}` | {yes[kind.embeds]} | {yes[kind.chats]} | {needs} | {given[0]}| {given[1]}|"
        assert row in text
