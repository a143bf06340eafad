"""``embedkit ask``, ``consensus``, ``panel`` and ``analyze``: one question to many models."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from embedkit.ask import Consensus, Replies, Result, Round, ask_all, consensus, panel
from embedkit.ask.analysis import Analysis, analyse
from embedkit.ask.health import learn_health
from embedkit.engine import open_engine
from embedkit.errors import UsageError
from embedkit.settings import Settings
from embedkit.surfaces.ask_text import (
    analysis_text,
    consensus_text,
    panel_text,
    replies_table,
    result_text,
    round_text,
)
from embedkit.surfaces.engine_words import words_shown
from embedkit.surfaces.exits import DONE, FAILED, INTERRUPTED, print_json, print_text
from embedkit.surfaces.interrupts import interruptible


async def run_ask(given: argparse.Namespace, settings: Settings) -> int:
    """Ask, print answers as they settle, then a table.

    Cancellation:
        Answers that had settled were printed.
    """
    question = _text(given.question, "question")

    def show(result: Result) -> None:
        if not given.json:
            print_text(result_text(result))

    replies: Replies | None = None
    async with interruptible() as interrupt, open_engine(settings, show_words=words_shown(given)) as engine:
        await learn_health(engine)
        replies = await ask_all(
            engine,
            question,
            given.to,
            timeout=given.timeout,
            deadline=given.deadline,
            files=given.file,
            on_result=show,
        )
    if interrupt.came or replies is None:
        return INTERRUPTED
    if given.json:
        print_json(replies.as_json())
    else:
        print_text(replies_table(replies))
    return DONE if len(replies.answers) == len(replies.results) else FAILED


async def run_consensus(given: argparse.Namespace, settings: Settings) -> int:
    """Judge, print rounds as they end, then the end.

    Cancellation:
        Rounds that had ended were printed.
    """
    proposal = _text(given.proposal, "proposal")

    def show(one: Round) -> None:
        if not given.json:
            print_text(round_text(one))

    found: Consensus | None = None
    async with interruptible() as interrupt, open_engine(settings, show_words=words_shown(given)) as engine:
        await learn_health(engine)
        found = await consensus(
            engine,
            proposal,
            given.to,
            arbiter=given.arbiter,
            max_rounds=given.max_rounds,
            timeout=given.timeout,
            on_round=show,
        )
    if interrupt.came or found is None:
        return INTERRUPTED
    if given.json:
        print_json(found.as_json())
    else:
        print_text(consensus_text(found))
    return DONE if found.status == "converged" else FAILED


async def run_panel(given: argparse.Namespace, settings: Settings) -> int:
    """Say who would be asked; nothing is sent.

    Cancellation:
        Nothing was printed.
    """
    async with open_engine(settings) as engine:
        await learn_health(engine)
        view = panel(engine, given.to)
    if given.json:
        asked = [{"alias": one.alias, "provider": one.provider, "model": one.model} for one in view.asked]
        print_json({"asked": asked, "omitted": list(view.omitted), "unavailable": view.unavailable})
    else:
        print_text(panel_text(view))
    return DONE


async def run_analyze(given: argparse.Namespace, settings: Settings) -> int:
    """Read a ``debug.jsonl`` and print what it says of each model.

    Cancellation:
        Nothing was printed.
    """
    import trio

    path = given.file or settings.ask.log
    if path is None:
        raise UsageError("no log: name a file, or set ask.log")
    analysis = await trio.to_thread.run_sync(_analysis_of, path)
    if given.json:
        print_json(analysis.as_json())
    else:
        print_text(analysis_text(analysis))
    return DONE


def _analysis_of(path: Path) -> Analysis:
    try:
        with path.open(encoding="utf-8", errors="replace") as lines:
            return analyse(lines)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error


def _text(given: str | None, what: str) -> str:
    """What was given as an argument, or stands on standard input."""
    text = given
    if text is None or text == "-":
        text = "" if sys.stdin is None or sys.stdin.isatty() else sys.stdin.read()
    if not text.strip():
        raise UsageError(f"there is no {what}; give it as an argument, or on standard input")
    return text
