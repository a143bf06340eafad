from __future__ import annotations

import tomllib

import pytest
from hypothesis import HealthCheck, given, settings
from toml_documents import documents, leaves

from embedkit.settings.lines import key_lines


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(documents())
def test_every_leaf_has_the_line_on_which_its_last_key_stands(text: str) -> None:
    document = tomllib.loads(text)
    lines = key_lines(text)
    rows = text.replace("\r\n", "\n").split("\n")
    for path in leaves(document):
        names = [part for part in path if isinstance(part, str)]
        row = rows[lines[path] - 1]
        if path[-1] == names[-1]:
            # Each name occurs once, so no other row can hold it by chance.
            assert names[-1] in row
        else:
            assert lines[path] >= lines[path[:-1]]
            assert row.strip()


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(documents())
def test_no_key_is_found_that_is_not_there(text: str) -> None:
    document = tomllib.loads(text)
    for path in key_lines(text):
        value: object = document
        for part in path:
            value = value[part]  # type: ignore[index]


@pytest.mark.parametrize(
    ("text", "path", "line"),
    [
        ('a = """\nb = 1\n"""\nb = 2', ("b",), 4),
        ("a = '''x'''''\nb = 2", ("b",), 2),
        ("a = [\n  1, # one\n  # two\n  2,\n]", ("a", 1), 4),
        ("a = [\n {x = 1},\n {x = 2} ]", ("a", 1, "x"), 3),
        ("[[t]]\nn = 1\n[[t]]\n\nn = 2\n[[t.r]]\n[[t.r]]\np = 3", ("t", 1, "r", 1, "p"), 8),
        ("[[t]]\n[t.sub]\nx = 1\n[[t]]\n[t.sub]\nx = 2", ("t", 1, "sub", "x"), 6),
        ("[a.b]\nx = 1\n[a]\ny = 2", ("a",), 3),
        ('"a.b"."\\u0063" = 1', ("a.b", "c"), 1),
        ("a = 1\r\nb = '''\r\n\r\n'''\r\nc = 2\r\n", ("c",), 5),
        ("a = {b.c = 1, d = {e = [2]}}", ("a", "d", "e", 0), 1),
    ],
)
def test_lines(text: str, path: tuple[str | int, ...], line: int) -> None:
    assert key_lines(text)[path] == line
