"""Writing again what a locked database did not take: what was bought for it is in hand, and is not bought twice."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from embedkit.errors import StoreLocked

T = TypeVar("T")

_TRIES = 3


async def retry_locked(transaction: Callable[[], Awaitable[T]]) -> T:
    """Run ``transaction`` until the database takes it; each try has waited for the lock already.

    Raises:
        StoreLocked: It was locked three times running.
        Exception: Whatever else the transaction raises.

    Cancellation:
        As the transaction.
    """
    for _ in range(_TRIES - 1):
        try:
            return await transaction()
        except StoreLocked:
            continue
    return await transaction()
