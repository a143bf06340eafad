"""The knowledge base, read whole; and mended, where that is asked for.

It is no check of the list: it takes a second per 100,000 chunks.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from embedkit.doctor.finding import Finding
from embedkit.errors import EmbedkitError
from embedkit.knowledge.storing.checking import Damage, StoreReport, examine_store
from embedkit.knowledge.storing.repairing import repair_store

_CHECK: Final = "damage"
_WAY_OUT: Final = "`embedkit restore FILE` puts a backup back, or move the file away and run `embedkit sync`"


async def check_store(path: Path, *, repair: bool = False) -> Sequence[Finding]:
    """What is wrong with the store at ``path``.

    Args:
        path: The store's file.
        repair: Drop what is damaged and can be bought, read or found out again.

    Cancellation:
        Nothing was changed; a repair is whole or not done.
    """
    try:
        found = await (repair_store(path) if repair else examine_store(path))
    except EmbedkitError as error:
        return [Finding(_CHECK, "error", str(error))]
    return [
        *(Finding(_CHECK, "note", f"mended: {_said(damage)}") for damage in found.mended),
        *_after(found),
        *(Finding(_CHECK, "error", f"{_said(damage)}; {_mend(damage, repair=repair)}") for damage in found.damages),
    ]


def _after(found: StoreReport) -> list[Finding]:
    if found.dropped:
        message = f"{found.dropped:,} documents were let go; `embedkit sync --all` reads them again"
        return [Finding(_CHECK, "warning", message)]
    return [Finding(_CHECK, "ok", f"{found.path} is whole")] if found.is_whole else []


def _said(damage: Damage) -> str:
    return damage.trouble if damage.count == 1 else f"{damage.trouble} ({damage.count:,} times)"


def _mend(damage: Damage, *, repair: bool) -> str:
    if damage.kind == "versions":
        return "upgrade embedkit, or " + _WAY_OUT
    if not repair:
        return "`embedkit doctor --store --repair` mends what can be bought or read again"
    return "it cannot be bought again: " + _WAY_OUT
