"""A connection of one's own whose nursery fails costs a line in the log, and no lane and no engine."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from embedkit.errors import ProviderFailure

from test_guarded import Own, opened  # isort: skip


class Fragile(Own):
    """Its first connection's own task fails after a second. Calls take two on that one, where ``is_slow``."""

    def __init__(self, *, is_slow: bool = False) -> None:
        super().__init__()
        self.is_slow = is_slow

    @asynccontextmanager
    async def connect(self) -> AsyncGenerator[Fragile]:
        self.opened += 1
        try:
            async with trio.open_nursery() as nursery:
                if self.opened == 1:
                    nursery.start_soon(self._fail)
                yield self
                nursery.cancel_scope.cancel()
        finally:
            self.closed += 1

    async def embed(self, texts: Sequence[str]) -> Any:
        await trio.sleep(2 if self.is_slow else 0)
        return await super().embed(texts)

    async def _fail(self) -> None:
        await trio.sleep(1)
        raise OSError("a text that nobody may see")


@pytest.mark.parametrize("is_slow", [False, True], ids=["while idle", "during a call"])
async def test_a_connection_whose_nursery_fails_is_replaced_by_the_next_call(
    is_slow: bool, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    own = Fragile(is_slow=is_slow)
    with caplog.at_level(logging.WARNING):
        async with opened(own) as engine:
            for _ in range(3):
                assert len((await engine.embed(["a"])).vectors) == 1
                await trio.sleep(2)
            assert (own.opened, own.closed) == (2, 1)
    assert own.closed == 2
    assert [record.getMessage() for record in caplog.records] == [
        "provider mine: a connection ended with ExceptionGroup"
    ]


async def test_one_that_cannot_be_opened_anew_is_that_ticket_s_failure(autojump_clock: MockClock) -> None:
    class Gone(Fragile):
        @asynccontextmanager
        async def connect(self) -> AsyncGenerator[Fragile]:
            if self.opened == 1:
                self.opened += 1
                raise KeyError("no")
            async with super().connect() as connection:
                yield connection

    own = Gone()
    async with opened(own) as engine:
        await engine.embed(["a"])
        await trio.sleep(2)
        with pytest.raises(ProviderFailure, match=r"^provider mine: it failed \(KeyError\)$"):
            await engine.embed(["a"])
        assert len((await engine.embed(["a"])).vectors) == 1
        assert own.opened == 3
