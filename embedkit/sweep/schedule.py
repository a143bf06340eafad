"""When a repository is due, when it is due next, and how wide its next tickets may be. Pure."""

from __future__ import annotations

import hashlib

JITTER_SHARE = 0.2


def is_due(next_due_at: float | None, now: float) -> bool:
    """Whether a repository may be swept now; one that never was is due."""
    return next_due_at is None or now >= next_due_at


def jitter(tenant: str, repository: str, base: float) -> float:
    """Seconds from 0 to a fifth of ``base``, always the same for a repository: spreads them, and can be foreseen."""
    digest = hashlib.sha256(f"{tenant}/{repository}".encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big") / 2**64 * JITTER_SHARE * base


def backoff(base: float, jitter_seconds: float, streak: int, cap: float) -> float:
    """Seconds until the next try after ``streak`` failures in a row: doubles with each, up to ``cap``."""
    # 2.0**streak overflows a float at 1,024; the cap was reached long before.
    return min((base + jitter_seconds) * 2.0 ** min(streak, 64), cap)


def batch_ceiling(held: int | None, *, timed_out: int | None, clean: bool, batch: int) -> int | None:
    """Most inputs that a ticket of the next sweep may hold; ``None``: as many as the settings say.

    Halved within a sweep, a batch that timed out would only buy the same failure again; so this is for the next.

    Args:
        held: The ceiling of the sweep that has ended.
        timed_out: Inputs of its smallest ticket that timed out, or ``None``: none did.
        clean: Whether it ended without an error.
        batch: What the settings say.
    """
    if timed_out is not None:
        return max(timed_out // 2, 1)
    if held is None or not clean:
        return held
    return 2 * held if 2 * held < batch else None
