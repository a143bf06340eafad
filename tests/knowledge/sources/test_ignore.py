"""Ignore rules, held against git itself; and patterns that are no regular expressions, or were slow ones."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from embedkit.knowledge.sources.ignore import Ignored, Rules

NAMES = [
    *("a", "b", "ab", "abc", "a.py", "b.py", "keep.txt", "x y", "d", "é", "packages", "node_modules"),
    *("-", "]", "a]", "[a", "a^", "Z", "0", "a\\b", "d ", "a*b", "a\nb"),
]
PIECES = [
    *"aabbd*/!?.[]\\-^ #", "**", "**/", "**/", "[a-c]", "[!a]", "[[:alpha:]]", "[[:digit:]x]", "*.py", "keep.txt", "d/",
    "\\ ", "é", "[z-a]", "[]a]", "[^]a]", "[a", "\\*", "[[:bad:]]", "[\\]]", "[[:]", "[a-", "a/", "b/", "\\/", "[/]",
]  # fmt: skip
# Whole lines, among them those of the reports (python-pathspec#137, python-pathspec#134, black#5306, continue#1191).
LINES = [
    *("d/**", "!d/keep.txt", "*", "!*/", "!*.py", "node_modules/", "!packages/", "**/a", "a/**", "a/**/b", "/a"),
    *("/*", "!/d", "*.txt", "d/*", "!d/a/", "**/a/**/b", "a**/b", "d**", "*/b", "/**", "**/", "a/**/", "!a"),
]


def a_pattern(chance: random.Random) -> str:
    if chance.random() < 0.4:
        return chance.choice(LINES)
    return "".join(chance.choice(PIECES) for _ in range(chance.randint(1, chance.choice([2, 4, 7]))))


def some_rules(chance: random.Random) -> bytes:
    lines = [a_pattern(chance) for _ in range(chance.randint(1, 5))]
    return (chance.choice(["", "", "\ufeff"]) + "\n".join(lines) + chance.choice(["\n", "", "\r\n"])).encode()


def make_set(folder: Path, chance: random.Random) -> None:
    """A small tree with one to three ignore files."""
    folder.mkdir()
    for _ in range(chance.randint(2, 9)):
        file = folder.joinpath(*(chance.choice(NAMES) for _ in range(chance.randint(1, 4))))
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()
        except OSError:
            continue  # a file where a folder should be
    folders = [name for name, _, _ in os.walk(folder)]
    (folder / ".gitignore").write_bytes(some_rules(chance))
    for name in chance.sample(folders, min(len(folders), chance.randint(0, 2))):
        Path(name, ".gitignore").write_bytes(some_rules(chance))


def walked(root: Path, here: str, rules: Ignored, is_ignored: bool) -> Iterator[tuple[str, bool]]:
    """Every path below ``here`` and whether we ignore it; as git, also what lies in an ignored folder."""
    file = root / here / ".gitignore"
    if file.exists() and not is_ignored:
        rules = rules.within(here, [file.read_bytes()])
    for name in sorted(os.listdir(root / here)):
        path = here + name
        if name == ".git":
            continue
        is_folder = (root / path).is_dir()
        covered = is_ignored or rules.covers(path + "/" if is_folder else path)
        yield path, covered
        if is_folder:
            yield from walked(root, path + "/", rules, covered)


def differing(root: Path, sets: int, seed: int) -> list[str]:
    """Paths about which git and we disagree, in ``sets`` random sets of rules."""
    chance = random.Random(seed)
    subprocess.run(["git", "init", "-q", root], check=True)
    for number in range(sets):
        make_set(root / f"s{number}", chance)
    ours = dict(walked(root, "", Ignored(), is_ignored=False))
    asked = subprocess.run(
        ["git", "-C", root, "-c", "core.excludesFile=/dev/null", "check-ignore", "--no-index", "-z", "--stdin"],
        input=b"".join(os.fsencode(path) + b"\0" for path in ours),
        capture_output=True,
        check=False,
    )
    theirs = {os.fsdecode(path) for path in asked.stdout.split(b"\0") if path}
    assert len(theirs) > len(ours) / 10
    return sorted(path for path, covered in ours.items() if covered != (path in theirs))


@pytest.mark.skipif(shutil.which("git") is None, reason="there is no git to compare with")
@pytest.mark.parametrize("seed", range(2))
def test_random_rules_mean_what_they_mean_to_git(tmp_path: Path, seed: int) -> None:
    """28 of 1,500 sets differed when the expressions were pathspec's."""
    assert differing(tmp_path, 150, seed) == []


@pytest.mark.soak
@pytest.mark.skipif(shutil.which("git") is None, reason="there is no git to compare with")
@pytest.mark.parametrize("seed", range(100, 200))
def test_twenty_thousand_random_rules_mean_what_they_mean_to_git(tmp_path: Path, seed: int) -> None:
    assert differing(tmp_path, 200, seed) == []


@pytest.mark.parametrize(
    ("line", "ignored", "kept"),
    [
        ("[z-a]", ["z"], ["a", "m", "[z-a]"]),  # an empty range; git takes its first letter for itself as well
        ("[9-0]x", ["9x"], ["0x", "[9-0]x"]),
        ("[[:digit:]]x", ["1x"], ["ax", "dx"]),
        ("[![:upper:]]", ["a", "1"], ["A"]),
        ("[[:nonsense:]]", [], ["n", ":"]),
        ("[a", [], ["a", "[a"]),
        ("a\\", [], ["a", "a\\"]),
        ("(a|b)+$", ["(a|b)+$"], ["a", "b"]),
        ("{a,b}", ["{a,b}"], ["a"]),
    ],
)
def test_a_pattern_that_is_no_regular_expression_is_read_as_git_reads_it(
    line: str, ignored: list[str], kept: list[str]
) -> None:
    """``[z-a]`` ended the whole sweep, other tenants' with it; ``[[:digit:]]`` warned and matched nothing."""
    rules = Rules([line.encode()])
    assert [path for path in (*ignored, *kept) if rules.verdict(path)] == ignored


@pytest.mark.parametrize(
    ("line", "path"),
    [
        ("*a" * 14 + "b", "a" * 60),
        ("*a" * 120 + "b", "a" * 250),
        ("**/a/" * 14 + "b", "/".join("a" * 60)),
        ("/" + "*a*a*/" * 14 + "b", "/".join(["a" * 60] * 15)),
        ("*" + "[ab]*" * 100 + "c", "ab" * 120),
        ("*/a" * 300_000, "a"),
        ("a" * 1_000_000 + "?", "a"),
        ("[" + "a" * 1_000_000, "a"),
    ],
    ids=lambda value: value[:12],
)
def test_no_pattern_takes_exponential_time(line: str, path: str) -> None:
    """``*a`` fourteen times, then ``b``, beside a name of sixty letters stood still for hours."""
    began = time.process_time()
    assert not Rules([line.encode()]).verdict(path)
    assert time.process_time() - began < 2


def test_ten_thousand_lines_cost_little_more_than_ten() -> None:
    lines = [b"dir%d/*.o%d\n*.e%d\nname%d\n/x%d/y\n*%d?" % ((number,) * 6) for number in range(2000)]
    rules = Rules([b"\n".join(lines)])
    began = time.process_time()
    assert not any(rules.verdict(f"folder{number}/file{number}.py") for number in range(500))
    assert time.process_time() - began < 2
