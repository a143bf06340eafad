"""``embedkit probe``: whether a provider can answer. One probe serves all who ask, in every process of the store."""

from __future__ import annotations

import argparse

from embedkit.engine import open_engine
from embedkit.probing.rules import Verdict, Word
from embedkit.settings import Settings
from embedkit.surfaces.engine_words import words_shown
from embedkit.surfaces.exits import DONE, FAILED, INTERRUPTED, WORK_LEFT, print_json, print_text
from embedkit.surfaces.interrupts import interruptible

_EXITS: dict[Word, int] = {"healthy": DONE, "degraded": FAILED, "unknown": WORK_LEFT}


async def run(given: argparse.Namespace, settings: Settings) -> int:
    """Ask, and print.

    Cancellation:
        Nothing was printed. A call that was out is cut off.
    """
    verdict: Verdict | None = None
    async with interruptible() as interrupt, open_engine(settings, show_words=words_shown(given)) as engine:
        verdict = await engine.probe(given.name)
    if interrupt.came or verdict is None:
        return INTERRUPTED
    if given.json:
        print_json(verdict.as_json())
    else:
        print_text(f"{verdict_text(verdict)}\n")
    return _EXITS[verdict.verdict]


def verdict_text(verdict: Verdict) -> str:
    """One line for people."""
    text = f"{verdict.provider}: {verdict.verdict}"
    if verdict.reason is not None:
        text += f" ({verdict.reason})"
    if verdict.age is not None and verdict.shared:
        text += f", known for {verdict.age:.0f} s"
    return text if verdict.shared else f"{text}, answered in {verdict.elapsed:.2f} s"
