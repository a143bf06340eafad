"""When a repository is due, and when it is due next. Pure."""

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
