"""``embedkit add``: texts that are in no folder, as JSON lines on standard input, become a repository.

A bad line is named on standard error and costs nothing but itself, except that nothing is removed then: it may have
named a document that is there.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import AsyncGenerator
from functools import partial

import attrs
import trio

from embedkit.engine import Indexed, open_engine
from embedkit.errors import UsageError
from embedkit.knowledge.model import Document
from embedkit.settings import Settings
from embedkit.surfaces.engine_words import words_shown
from embedkit.surfaces.exits import DONE, FAILED, INTERRUPTED, print_json, print_text
from embedkit.surfaces.folders import TENANT
from embedkit.surfaces.interrupts import interruptible
from embedkit.surfaces.json_lines import Lines, Stream, read_lines
from embedkit.surfaces.report_text import counted
from embedkit.surfaces.terminal import watching_additions


@attrs.define
class _Input:
    """Standard input, and how many of its lines were bad."""

    stream: Stream
    bad: int = 0
    read: int = 0

    async def documents(self) -> AsyncGenerator[Document]:
        """Each good line's; each bad line is told at once.

        Cancellation:
            Lines that were being read are lost; the reading thread is left to itself.
        """
        while (lines := await self._more()).count:
            self.read += lines.count
            self.bad += len(lines.bad)
            for line in lines.bad:
                sys.stderr.write(f"embedkit: {line}\n")
            for document in lines.documents:
                yield document

    async def _more(self) -> Lines:
        return await trio.to_thread.run_sync(partial(read_lines, self.stream, self.read + 1), abandon_on_cancel=True)


async def run(given: argparse.Namespace, settings: Settings) -> int:
    """Index what comes on standard input, and say what came of it.

    Cancellation:
        What was stored stays.
    """
    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError("add reads JSON lines on standard input, and nothing is piped into it")
    source = _Input(sys.stdin.buffer)
    done: Indexed | None = None
    tenant = TENANT if given.tenant is None else given.tenant
    async with interruptible() as interrupt, open_engine(settings, reserve=0, show_words=words_shown(given)) as engine:
        with watching_additions(sys.stderr, f"{tenant}/{given.repository}") as on_progress:
            done = await engine.index(
                tenant,
                given.repository,
                source.documents(),
                complete=lambda: given.complete and not source.bad,
                allow_empty=given.allow_empty,
                on_progress=on_progress,
            )
    if interrupt.came or done is None:
        return INTERRUPTED
    if given.json:
        print_json(_as_json(done, tenant, given.repository, source.bad))
    else:
        print_text(_text(done, f"{tenant}/{given.repository}", source.bad, complete=given.complete))
    return FAILED if source.bad or done.oversized else DONE


def _as_json(done: Indexed, tenant: str, repository: str, bad: int) -> dict[str, object]:
    return {
        "tenant": tenant,
        "name": repository,
        "documents": done.documents,
        "bad_lines": bad,
        "oversized": list(done.oversized),
        "chunks": done.chunks,
        "embedded": done.embedded,
        "reused": done.reused,
        "deleted": done.deleted,
        "fenced": dict(done.fenced),
        "provider_calls": done.provider_calls,
        "clocks": done.clocks.as_json(),
    }


def _text(done: Indexed, name: str, bad: int, *, complete: bool) -> str:
    did = [f"{counted(done.embedded, 'vector')} bought"]
    did += [f"{number:,} {word}" for number, word in ((done.reused, "reused"), (done.deleted, "removed")) if number]
    lines = [
        f"{name}: {counted(done.documents, 'document')} added, {counted(done.chunks, 'chunk')} stored; {', '.join(did)}"
    ]
    if bad:
        kept = "; nothing was removed" if complete else ""
        lines.append(f"  {counted(bad, 'bad line')}{kept}")
    lines += [f"  oversized: {path}" for path in done.oversized]
    lines += [f"  fenced: {counted(count, 'chunk')} of {path}" for path, count in done.fenced.items()]
    return "\n".join(lines) + "\n"
