"""Programs: on PATH or not, and which version each says it is. They are asked for that alone, and reach nobody."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from typing import Final

import trio

from embedkit.ask.children import run_child
from embedkit.ask.program_words import without_credentials
from embedkit.ask.programs import PROGRAMS
from embedkit.doctor.finding import Finding, Subject

VERSION_SECONDS: Final = 5.0
_LONGEST_VERSION: Final = 80


async def check_programs(subject: Subject) -> Sequence[Finding]:
    """Which programs are there; one that a provider needs and that is not is an error.

    Cancellation:
        Programs that were asked were ended.
    """
    names = [name for candidates in PROGRAMS.values() for name in candidates]
    paths = {name: shutil.which(name, path=subject.environ.get("PATH", "")) for name in names}
    said: dict[str, str] = {}

    async def ask(name: str, path: str) -> None:
        said[name] = await _version(path, subject.environ)

    async with trio.open_nursery() as nursery:
        for name, path in paths.items():
            if path is not None:
                nursery.start_soon(ask, name, path)
    there = [Finding("program", "ok", f"{name}: {said[name]}, {paths[name]}") for name in names if name in said]
    return [*there, *_missing(subject, said)]


def _missing(subject: Subject, said: Mapping[str, str]) -> list[Finding]:
    found = []
    for kind, candidates in PROGRAMS.items():
        if any(name in said for name in candidates):
            continue
        wanted = [name for name, described in subject.settings.providers.items() if described.kind == kind]
        names = " or ".join(candidates)
        found += [
            Finding("program", "error", f"provider {name}: no program {names} is on PATH; install it")
            for name in wanted
        ]
        if not wanted:
            found.append(Finding("program", "note", f"{names}: not on PATH; no provider needs it"))
    return found


async def _version(path: str, environ: Mapping[str, str]) -> str:
    """What a program says of its version, in one line."""
    bare = without_credentials(environ)
    try:
        ended = await run_child([path, "--version"], given=b"", environ=bare, limit=VERSION_SECONDS)
    except OSError as error:
        return f"cannot be started ({error.strerror})"
    if ended.was_killed:
        return f"does not say its version within {VERSION_SECONDS:g} s"
    line = next((line for line in ended.text.splitlines() if line.strip()), "")
    shown = "".join(sign for sign in line.strip() if sign.isprintable())[:_LONGEST_VERSION]
    return shown if ended.returncode == 0 and shown else "does not say its version"
