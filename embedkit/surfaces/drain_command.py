"""``embedkit drain``: embeds the texts that were deferred, for ever; ``--once``: until none is ready.

Tests: tests/surfaces/test_drain_command.py.
"""

from __future__ import annotations

import argparse

import attrs

from embedkit.engine import Engine, open_engine
from embedkit.settings import Settings
from embedkit.surfaces.engine_words import words_shown
from embedkit.surfaces.exits import DONE, FAILED, INTERRUPTED, WORK_LEFT, print_json, print_text
from embedkit.surfaces.interrupts import interruptible
from embedkit.surfaces.report_text import counted


async def run(given: argparse.Namespace, settings: Settings) -> int:
    """Drain until interrupted, or once.

    Cancellation:
        What was bought is stored, and what was not is in the log.
    """
    code = DONE
    async with interruptible() as interrupt, open_engine(settings, reserve=0, show_words=words_shown(given)) as engine:
        await engine.knowledge(create=False)
        if given.retry_failed:
            await engine.drain.revive()
        if given.once:
            code = await _once(engine, as_json=given.json)
        else:
            await engine.drain.run()
    return INTERRUPTED if interrupt.came else code


async def _once(engine: Engine, *, as_json: bool) -> int:
    done = await engine.drain.until_empty()
    left = await engine.drain.statistics()
    if as_json:
        print_json({**attrs.asdict(done), **attrs.asdict(left)})
    else:
        print_text(
            f"drained: {counted(done.drained, 'text')}, {counted(done.calls, 'call')}; "
            f"{left.waiting:,} waiting, {left.given_up:,} given up"
            + (f" ({', '.join(left.codes)}; --retry-failed offers them again)" if left.given_up else "")
            + (f"; why: {done.yielded}" if done.yielded else "")
            + "\n"
        )
    if left.given_up:
        return FAILED
    return WORK_LEFT if left.waiting else DONE
