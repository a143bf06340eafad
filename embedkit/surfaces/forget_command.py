"""``embedkit forget``: a repository, or all of a tenant, leaves the knowledge base. It asks first, and calls nobody."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import trio

from embedkit.engine import Engine, open_engine
from embedkit.errors import UsageError
from embedkit.knowledge.storing.repositories import GIVEN_ROOT, RepositoryRecord
from embedkit.settings import Settings
from embedkit.surfaces.exits import DONE, INTERRUPTED, print_json, print_text
from embedkit.surfaces.interrupts import interruptible
from embedkit.surfaces.report_text import counted


async def run(given: argparse.Namespace, settings: Settings) -> int:
    """Ask, and forget.

    Cancellation:
        Whole repositories may be gone; one that was begun is continued by the next ``forget``.
    """
    if given.tenant is None and given.repository is None:
        raise UsageError("forget what? Name a tenant (--tenant), a repository (--repository), or both")
    code = DONE
    async with interruptible() as interrupt, open_engine(settings) as engine:
        records = await _chosen(given, engine)
        if not given.yes and not await _agrees(engine, records):
            print_text("nothing was forgotten\n")
        else:
            await _forget(given, engine, records)
    return INTERRUPTED if interrupt.came else code


async def _chosen(given: argparse.Namespace, engine: Engine) -> Sequence[RepositoryRecord]:
    store = await engine.knowledge(create=False)
    names = await store.tenants()
    tenant = given.tenant
    if tenant is None:
        if len(names) != 1:
            raise UsageError(f"the store has several tenants: {', '.join(names) or 'none'}; name one (--tenant)")
        (tenant,) = names
    if tenant not in names:
        raise UsageError(f"the store has no tenant {tenant!r}; it has {', '.join(names) or 'none'}")
    records = [record for record in await store.repositories() if record.tenant == tenant]
    chosen = [record for record in records if given.repository in (None, record.name)]
    if not chosen:
        known = ", ".join(record.name for record in records)
        raise UsageError(f"tenant {tenant} has no repository {given.repository!r}; it has {known}")
    return chosen


async def _agrees(engine: Engine, records: Sequence[RepositoryRecord]) -> bool:
    store = await engine.knowledge()
    for record in records:
        documents, chunks = await store.count(record)
        where = f" (from {record.root})" if record.root not in (None, GIVEN_ROOT) else ""
        sys.stderr.write(
            f"{record.tenant}/{record.name}{where}: {counted(documents, 'document')}, {counted(chunks, 'chunk')}\n"
        )
    if sys.stdin is None or not sys.stdin.isatty():
        raise UsageError("forget asks before it removes, and nobody can answer here; say --yes")
    sys.stderr.write("forget them? [y/N] ")
    sys.stderr.flush()
    answer = await trio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)
    return answer.strip().lower() in ("y", "yes")


async def _forget(given: argparse.Namespace, engine: Engine, records: Sequence[RepositoryRecord]) -> None:
    forgotten = await engine.forget(tenant=records[0].tenant, repository=given.repository)
    if given.json:
        print_json(
            {
                "forgotten": [{"tenant": tenant, "name": name} for tenant, name in forgotten.repositories],
                "documents": forgotten.documents,
                "chunks": forgotten.chunks,
            }
        )
    else:
        names = ", ".join(f"{tenant}/{name}" for tenant, name in forgotten.repositories)
        print_text(
            f"forgotten: {names}; {counted(forgotten.documents, 'document')}, {counted(forgotten.chunks, 'chunk')}\n"
        )
