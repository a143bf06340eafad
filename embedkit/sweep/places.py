"""How many repositories are worked on at once: in all, and of each tenant.

Whoever waits for a git server to answer does no work, and holds none of these places: it has one among those who wait,
which are many. So a server that says nothing holds up nobody but itself.

Tests: tests/sweep/test_silent_servers.py.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

import trio

WAITING: Final = 32
"""Repositories that wait for git servers at once; each may be a process of its own."""

WAITING_OF_TENANT: Final = 4


class Seat:
    """The place of one repository.

    Attributes:
        works_since: Instant; ``None`` while it waits for a server.
    """

    def __init__(self, held: AsyncExitStack, work: Sequence[trio.CapacityLimiter], *, waits: bool) -> None:
        self.works_since = None if waits else trio.current_time()
        self._held = held
        self._work = work

    async def begin_work(self) -> float:
        """From waiting to work; nothing changes for who works already. Returns since when it works.

        Cancellation:
            A place among those who wait is held, or none.
        """
        await trio.lowlevel.checkpoint()
        if self.works_since is None:
            await self._held.aclose()
            for limiter in self._work:
                await self._held.enter_async_context(limiter)
            self.works_since = trio.current_time()
        return self.works_since


class Places:
    """The places of one run.

    Args:
        tenants: Their names.
        concurrency: Repositories that work at once.
        tenant_concurrency: Of one tenant.
    """

    def __init__(self, tenants: Iterable[str], *, concurrency: int, tenant_concurrency: int) -> None:
        names = list(tenants)
        self._work = trio.CapacityLimiter(concurrency)
        self._wait = trio.CapacityLimiter(WAITING)
        self._work_of = {name: trio.CapacityLimiter(tenant_concurrency) for name in names}
        self._wait_of = {name: trio.CapacityLimiter(WAITING_OF_TENANT) for name in names}

    @asynccontextmanager
    async def seat(self, tenant: str, *, waits: bool) -> AsyncGenerator[Seat]:
        """A place for one repository, for as long as the block lasts.

        Args:
            tenant: Whose.
            waits: Whether a server has to answer before there is work.

        Cancellation:
            No place is held.
        """
        # The tenant's place first: whoever waits for its own tenant must not hold a place that others could use.
        work, wait = (self._work_of[tenant], self._work), (self._wait_of[tenant], self._wait)
        async with AsyncExitStack() as held:
            for limiter in wait if waits else work:
                await held.enter_async_context(limiter)
            yield Seat(held, work, waits=waits)
