from __future__ import annotations

import copy
import json
import tomllib
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from embedkit.settings import Settings
from embedkit.settings.nearest import known_keys
from embedkit.settings.rules import RUNG
from embedkit.settings.schema import schema
from embedkit.settings.show import in_force
from embedkit.settings.structure import settings_from
from embedkit.surfaces.settings_command import render_json, render_schema

EXAMPLE = """
version = 1

[providers.box]                    # any name but "defaults"
kind = "openai-compatible"
base_url = "http://127.0.0.1:8080/v1"
model = "all-minilm"
api_key_env = "BOX_KEY"            # the key itself never stands in this file
capacity = 4
timeout = 120.0

[embedding]
provider = "box"

[[tenants]]
name = "acme"
repositories = [
  { name = "api", path = "../api" },
  { name = "site", git = "https://example.org/site.git", branch = "main", cadence = 900.0 },
]
"""
MORE = """
[providers.defaults]
timeout = 60
[models.m]
timeout = 5
[ask]
panel = [{ provider = "box" }]
[gateway]
listen = ["127.0.0.1:0", "unix:gateway.sock"]
certificate = "gateway.pem"
models = { small = "box" }
keys = [
  { name = "team", env = "TEAM_KEY" },
  { name = "other", sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08" },
]
"""
VALUES: list[Any] = [True, 1.5, -1, 0, 7, "", "  ", "zzz", [], {}, [1], {"zzz": 1}]
# The schema cannot know which names exist.
NAMES = {"embedding.provider", "consensus.arbiter", "ask.panel[].provider"}

VALIDATOR = Draft202012Validator(schema())


def document() -> dict[str, Any]:
    return tomllib.loads(EXAMPLE + MORE)


def put(into: dict[str, Any], pattern: str, value: Any) -> dict[str, Any]:
    """A copy of ``into`` with ``value`` under the key of ``pattern``."""
    changed = copy.deepcopy(into)
    names = {"<name>": "box", "<id>": "m"}
    *parents, last = [names.get(part, part) for part in pattern.split(".")]
    place: Any = changed
    for part in parents:
        if part.endswith("[]"):
            # The second repository is the one that comes from git, the second key the one that is a hash.
            is_second = (part, last) in {("repositories[]", "git"), ("repositories[]", "branch"), ("keys[]", "sha256")}
            place = place[part[:-2]][1 if is_second else 0]
        else:
            place = place.setdefault(part, {})
    place[last] = value
    return changed


def test_the_schema_is_one_and_says_so() -> None:
    Draft202012Validator.check_schema(schema())
    assert json.loads(render_schema()) == json.loads(json.dumps(schema()))


@pytest.mark.parametrize("text", [EXAMPLE, EXAMPLE + MORE, "version = 1"])
def test_what_the_loader_accepts_the_schema_accepts(text: str) -> None:
    parsed = tomllib.loads(text)
    assert isinstance(settings_from(parsed), Settings)
    VALIDATOR.validate(parsed)


@pytest.mark.parametrize("value", VALUES, ids=repr)
@pytest.mark.parametrize("pattern", [pattern for pattern, _field, leaf in known_keys() if leaf.rule is not RUNG])
def test_schema_and_loader_agree_on_every_key(pattern: str, value: Any) -> None:
    changed = put(document(), pattern, value)
    accepted = isinstance(settings_from(changed), Settings)
    if pattern in NAMES and isinstance(value, str) and value.strip():
        accepted = True
    assert VALIDATOR.is_valid(changed) == accepted


@pytest.mark.parametrize("value", [True, "60", 0, -1.0, [], {}], ids=repr)
def test_the_schema_refuses_a_timeout_that_the_loader_drops(value: Any) -> None:
    for pattern in ("providers.<name>.timeout", "providers.defaults.timeout", "models.<id>.timeout"):
        assert not VALIDATOR.is_valid(put(document(), pattern, value))


@pytest.mark.parametrize(
    "pattern",
    sorted({pattern.rpartition(".")[0] + "." for pattern, _field, _leaf in known_keys() if "." in pattern} | {""}),
)
def test_an_unknown_key_in_any_table_is_refused_by_both(pattern: str) -> None:
    changed = put(document(), pattern + "nonsense", 1)
    assert not VALIDATOR.is_valid(changed)
    assert isinstance(settings_from(changed), list)


@pytest.mark.parametrize("kind", ["openai-compatible", "ollama", "gemini", "grok", "codex", "local", "openrouter"])
@pytest.mark.parametrize("also", [{}, {"base_url": "http://x"}, {"model": "m"}, {"base_url": "http://x", "model": "m"}])
def test_what_a_kind_needs_is_in_the_schema(kind: str, also: dict[str, str]) -> None:
    parsed = {"version": 1, "providers": {"a": {"kind": kind, **also}}}
    assert VALIDATOR.is_valid(parsed) == isinstance(settings_from(parsed), Settings)


@pytest.mark.parametrize("text", [EXAMPLE + MORE, "version = 1"])
def test_what_is_in_force_is_a_file_again(text: str) -> None:
    settings = settings_from(tomllib.loads(text))
    assert isinstance(settings, Settings)
    shown = json.loads(render_json(settings))["settings"]
    VALIDATOR.validate(shown)
    again = settings_from(shown)
    assert isinstance(again, Settings)
    assert [(item.at, item.value) for item in in_force(again)] == [(item.at, item.value) for item in in_force(settings)]
