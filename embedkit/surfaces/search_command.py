"""``embedkit search``: the nearest chunks, and where they stand."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

import attrs

from embedkit.engine import Engine, open_engine
from embedkit.errors import UsageError
from embedkit.knowledge.searching.search import Hit
from embedkit.settings import Settings
from embedkit.surfaces.engine_words import words_shown
from embedkit.surfaces.exits import DONE, INTERRUPTED, print_json, print_text
from embedkit.surfaces.folders import TENANT
from embedkit.surfaces.interrupts import interruptible

_LINES_SHOWN = 6
_WIDTH = 110


async def run(given: argparse.Namespace, settings: Settings) -> int:
    """Search and print.

    Cancellation:
        Nothing was printed, or all of it.
    """
    if (given.query is None) == (given.like is None):
        raise UsageError("search for what? Give a QUERY, or the place of a chunk: --like PATH:LINE")
    hits: list[Hit] | None = None
    async with interruptible() as interrupt, open_engine(settings, show_words=words_shown(given)) as engine:
        hits = await found_hits(given, engine)
    if interrupt.came or hits is None:
        return INTERRUPTED
    if given.json:
        print_json({"query": given.query or "", "mode": given.mode, "hits": [hit_as_json(hit) for hit in hits]})
    else:
        print_text(_text(hits))
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
        given.query or "",
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


def hit_as_json(hit: Hit) -> dict[str, object]:
    """One of the command's ``hits``."""
    return {
        "score": hit.score,
        "tenant": hit.tenant,
        "repository": hit.repository,
        "path": hit.path,
        "lines": list(hit.lines),
        "text": hit.text,
        "cosine": hit.cosine,
        "metadata": dict(hit.metadata),
        "also": [{**attrs.asdict(place), "lines": list(place.lines)} for place in hit.also],
    }


def _text(hits: Sequence[Hit]) -> str:
    if not hits:
        return "nothing found\n"
    return "\n".join(_entry(hit) for hit in hits)


def _entry(hit: Hit) -> str:
    first, last = hit.lines
    head = f"{hit.score:.3f}  {hit.tenant}/{hit.repository}  {hit.path}:{first}-{last}"
    if hit.cosine is not None and hit.cosine != hit.score:
        head += f"  (cosine {hit.cosine:.3f})"
    if hit.also:
        head += f"  and in {len(hit.also)} more: {hit.also[0].path}" + (", ..." if len(hit.also) > 1 else "")
    if hit.metadata:
        head += "\n    " + _harmless(json.dumps(dict(hit.metadata), ensure_ascii=False))[:_WIDTH]
    lines = [line for line in hit.text.splitlines() if line.strip()]
    shown = [f"    {_harmless(line)[:_WIDTH]}" for line in lines[:_LINES_SHOWN]]
    more = [f"    ... {len(lines) - _LINES_SHOWN} more"] if len(lines) > _LINES_SHOWN else []
    return "\n".join([head, *shown, *more]) + "\n"


def _harmless(line: str) -> str:
    """``line`` without what a terminal would obey instead of showing."""
    return "".join(sign if sign.isprintable() else " " for sign in line.expandtabs(4))
