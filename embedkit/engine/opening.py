"""An engine's life, in two nurseries. What its block raises comes out as it is, in no group.

Leaving the block closes the lanes, waits ``drain_timeout`` for calls that nobody waits for any more, and ends. An
interrupt that comes out of the block does not wait.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

import trio

from embedkit.activity.ledger import Ledger
from embedkit.engine.engine import Engine
from embedkit.settings import Settings

if TYPE_CHECKING:
    from embedkit.activity.recorder import Listener
    from embedkit.providers.provider import Provider


@asynccontextmanager
async def open_engine(
    settings: Settings | None = None,
    *,
    recorder: Listener | None = None,
    reserve: int = 1,
    environ: Mapping[str, str] | None = None,
    providers: Mapping[str, Provider] | None = None,
) -> AsyncGenerator[Engine]:
    """The engine, for as long as the block lasts.

    Args:
        settings: ``load_settings()``, or made in code; without any, the embedded default model.
        recorder: Told of each change to a ticket's row, besides the engine's own ledger.
        reserve: Slots of each lane that batch work leaves free for people, where settings do not say.
        environ: Where keys are read; else the process's own environment.
        providers: By name: used in place of what the settings would make of that name, whose section still says which
            lane and retries it gets. A seam for tests, and for engines that embedkit does not know.

    Raises:
        ExceptionGroup: A defect in embedkit or in a provider ended a slot, and with it the engine. What the block
            itself raises comes out as it is.

    Cancellation:
        Calls that were out are cut off and recorded as ``unsettled``; nothing is waited for.
    """
    settings = Settings() if settings is None else settings
    ledger = Ledger()
    if recorder is not None:
        ledger.attach(recorder)
    body_error: BaseException | None = None
    async with AsyncExitStack() as stack:
        try:
            # The ledger's writer outlives the slots: it writes down how they ended.
            async with trio.open_nursery() as scribes:
                engine: Engine | None = None
                try:
                    async with trio.open_nursery() as nursery:
                        engine = Engine(
                            settings,
                            nursery,
                            scribes,
                            stack,
                            ledger,
                            reserve=reserve,
                            environ=os.environ if environ is None else environ,
                            providers={} if providers is None else providers,
                        )
                        try:
                            yield engine
                        except BaseException as error:
                            # Kept aside, so that the nursery does not wrap the block's own error in a group. What holds
                            # Cancelled is the nursery's business.
                            if _holds_cancelled(error):
                                raise
                            body_error = error
                        finally:
                            engine.close()
                        # An interrupt waits for nobody.
                        if body_error is None or isinstance(body_error, Exception):
                            with trio.move_on_after(settings.engine.drain_timeout):
                                await engine.drained()
                        nursery.cancel_scope.cancel()
                finally:
                    if engine is not None:
                        engine.end_writing()
        except BaseExceptionGroup as group:
            if body_error is None:
                raise
            if group.split(trio.Cancelled)[1] is not None:
                raise BaseExceptionGroup("the block and the engine failed", [body_error, group]) from None
        if body_error is not None:
            raise body_error


def _holds_cancelled(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return error.subgroup(trio.Cancelled) is not None
    return isinstance(error, trio.Cancelled)
