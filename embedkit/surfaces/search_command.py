"""``embedkit search``: the nearest chunks, and where they stand."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from shutil import get_terminal_size

import attrs
import trio

from embedkit.engine import Engine, open_engine
from embedkit.errors import UsageError
from embedkit.knowledge.searching.search import Hit
from embedkit.knowledge.storing.repositories import RepositoryRecord
from embedkit.settings import Settings
from embedkit.surfaces.engine_words import words_shown
from embedkit.surfaces.exits import DONE, INTERRUPTED, print_json, print_text
from embedkit.surfaces.folders import TENANT
from embedkit.surfaces.hits_schema import VERSION, hits_schema
from embedkit.surfaces.hits_text import View, files_text, hits_text
from embedkit.surfaces.interrupts import interruptible

_WIDTH = 200  # where no terminal says how wide it is


async def run(given: argparse.Namespace, settings: Settings) -> int:
    """Search and print.

    Cancellation:
        Nothing was printed, or all of it.
    """
    if given.schema:
        await trio.lowlevel.checkpoint()
        print_json(hits_schema())
        return DONE
    given.query = " ".join(given.query)
    if bool(given.query.strip()) == (given.like is not None):
        raise UsageError("search for what? Give a QUERY, or the place of a chunk: --like PATH:LINE")
    hits: list[Hit] | None = None
    roots: Mapping[tuple[str, str], str] = {}
    async with interruptible() as interrupt, open_engine(settings, show_words=words_shown(given)) as engine:
        hits = await found_hits(given, engine)
        roots = await roots_of(engine)
    if interrupt.came or hits is None:
        return INTERRUPTED
    if given.json:
        found = [hit_as_json(hit, roots) for hit in hits]
        print_json({"version": VERSION, "query": given.query, "mode": given.mode, "hits": found})
    else:
        print_text(_text(given, hits, roots))
    return DONE


async def found_hits(given: argparse.Namespace, engine: Engine, deadline: float | None = None) -> list[Hit]:
    """What ``given``, in the command's own arguments, finds.

    Args:
        given: The arguments.
        engine: Whose knowledge base.
        deadline: Seconds from now for the embedding of the query.

    Raises:
        UsageError: No knowledge base, no such tenant or repository, or several tenants and none named.

    Cancellation:
        Nothing was changed.
    """
    await engine.knowledge(create=False, may_be_read_only=True)
    return await engine.search(
        given.query,
        tenant=await _tenants(given, engine),
        repository=given.repository,
        k=given.k,
        mode=given.mode,
        path=given.path,
        language=given.lang,
        min_score=given.min_score,
        like=given.like,
        metadata=dict(given.metadata),
        deadline=deadline,
    )


async def roots_of(engine: Engine) -> dict[tuple[str, str], str]:
    """Where the repositories of the knowledge base lie that are folders: by tenant and name.

    Cancellation:
        Nothing was changed.
    """
    return _folders(await (await engine.knowledge()).repositories())


def _folders(records: Sequence[RepositoryRecord]) -> dict[tuple[str, str], str]:
    """Where repositories lie that are folders, and are there."""
    folders = {(record.tenant, record.name): record.root for record in records}
    return {key: root for key, root in folders.items() if root is not None and os.path.isdir(root)}


async def _tenants(given: argparse.Namespace, engine: Engine) -> Sequence[str]:
    store = await engine.knowledge()
    names = await store.tenants()
    if given.tenant is not None and given.tenant not in names:
        raise UsageError(f"the store has no tenant {given.tenant!r}; it has {_listed(names)}")
    if given.tenant is None and not given.all_tenants and len(names) > 1:
        raise UsageError(f"the store has several tenants: {_listed(names)}; name one (--tenant) or --all-tenants")
    chosen = names if given.tenant is None else [given.tenant]
    for tenant in chosen:
        if _is_left_over(tenant, engine.settings):
            said = f"no settings name tenant {tenant} any more; its chunks are as its last sync left them"
            sys.stderr.write(f"embedkit: {said}\n")
    repositories = [record for record in await store.repositories() if record.tenant in chosen]
    if given.repository is not None and given.repository not in {record.name for record in repositories}:
        known = _listed(sorted({record.name for record in repositories}))
        raise UsageError(f"there is no repository {given.repository!r}; there is {known}")
    return chosen


def _is_left_over(tenant: str, settings: Settings) -> bool:
    return bool(settings.tenants) and tenant != TENANT and tenant not in {item.name for item in settings.tenants}


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"


def hit_as_json(hit: Hit, roots: Mapping[tuple[str, str], str]) -> dict[str, object]:
    """One of the command's ``hits``."""
    return {
        "score": hit.score,
        "tenant": hit.tenant,
        "repository": hit.repository,
        "root": roots.get((hit.tenant, hit.repository)),
        "path": hit.path,
        "lines": list(hit.lines),
        "text": hit.text,
        "cosine": hit.cosine,
        "metadata": dict(hit.metadata),
        "also": [{**attrs.asdict(place), "lines": list(place.lines)} for place in hit.also],
    }


def _text(given: argparse.Namespace, hits: Sequence[Hit], roots: Mapping[tuple[str, str], str]) -> str:
    if not hits:
        return "nothing found\n"
    out = sys.stdout
    is_terminal = out is not None and out.isatty()
    width = max(get_terminal_size().columns, 20) if is_terminal else _WIDTH
    view = View(Path.cwd(), roots, given.query, context=given.context, width=width, scores=given.verbose)
    return files_text(hits, view) if given.files else hits_text(hits, view)
