"""``embedkit doctor``: whether everything is there that the settings need. It reads, and calls nobody.

With ``--store`` it reads all of the knowledge base as well, and with ``--repair`` it mends that.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from embedkit.doctor import Examination, Finding, Subject, check_store, examine
from embedkit.errors import UsageError
from embedkit.settings import Settings, load_settings
from embedkit.surfaces.ask_text import table
from embedkit.surfaces.exits import DONE, FAILED, INTERRUPTED, print_json, print_text
from embedkit.surfaces.interrupts import interruptible


async def run(given: argparse.Namespace) -> int:
    """Examine, and print.

    Cancellation:
        Nothing was changed.
    """
    reads_store = given.store is not None or given.repair
    if given.store == Path():
        given.store = None
    found: Examination | None = None
    async with interruptible() as interrupt:
        settings, of_settings = read_settings(given)
        found = await examine(Subject(settings, os.environ))
        if reads_store:
            of_store = await check_store(settings.store.path, repair=given.repair)
            found = Examination((*found.findings, *of_store))
    if interrupt.came or found is None:
        return INTERRUPTED
    found = Examination((*of_settings, *found.findings))
    if given.json:
        print_json(found.as_json())
    else:
        print_text(examination_text(found))
    return DONE if found.is_well else FAILED


def read_settings(given: argparse.Namespace) -> tuple[Settings, list[Finding]]:
    """The settings, and what is to be said of them; defaults if they cannot be read, so that the rest is examined."""
    dropped: list[str] = []
    try:
        settings = load_settings(given.config, warn=dropped.append)
        settings = settings.overridden(provider=given.provider, store=given.store)
    except UsageError as error:
        return Settings(), [Finding("settings", "error", str(error))]
    where = "no embedkit.toml: defaults" if settings.file is None else str(settings.file)
    return settings, [Finding("settings", "ok", where), *(Finding("settings", "warning", line) for line in dropped)]


def examination_text(found: Examination) -> str:
    """A line a finding, and how many are errors and warnings."""
    rows = [(finding.check, finding.state, _line(finding.message)) for finding in found.findings]
    return table(rows) + f"doctor: errors {found.count('error')}, warnings {found.count('warning')}\n"


def _line(text: str) -> str:
    return "".join(sign if sign.isprintable() else " " for sign in text)
