"""An engine's life, in two nurseries. What its block raises comes out as it is, in no group.

Leaving the block closes the lanes, waits ``drain_timeout`` for calls that nobody waits for any more, and ends. An
interrupt that comes out of the block does not wait.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

import attrs
import trio

from embedkit.activity.ledger import Ledger
from embedkit.engine.engine import Engine
from embedkit.settings import ProviderSettings, Settings

if TYPE_CHECKING:
    from embedkit.activity.recorder import Listener
    from embedkit.knowledge.storing.protocol import Store
    from embedkit.providers.provider import Provider


@asynccontextmanager
async def open_engine(
    settings: Settings | None = None,
    *,
    recorder: Listener | None = None,
    reserve: int = 1,
    environ: Mapping[str, str] | None = None,
    providers: Mapping[str, Provider] | None = None,
    show_words: Callable[[str], None] | None = None,
    store: Store | None = None,
) -> AsyncGenerator[Engine]:
    """The engine, for as long as the block lasts.

    Args:
        settings: ``load_settings()``, or made in code; without any, the embedded default model.
        recorder: Told of each change to a ticket's row, besides the engine's own ledger.
        reserve: Slots of each lane that batch work leaves free for people, where settings do not say.
        environ: Where keys are read; else the process's own environment.
        providers: By name: your own, for engines that embedkit does not know. One whose name has no section
            in the settings gets one of kind ``own``; one that has is used in place of what the settings would make,
            and its section says which lane and retries it gets. Without ``settings``, a single one embeds.
        show_words: Given, in one line, an engine's own words about each refusal, less the keys. They may quote texts,
            so they are to be shown to whoever asked for them, and not kept.
        store: Your own knowledge base, opened and closed by you, in place of the one in the file ``store.path``. The
            ledger and the shared probes stay in that file.

    Raises:
        ExceptionGroup: A defect in embedkit or in a provider ended a slot, and with it the engine. What the block
            itself raises comes out as it is.

    Cancellation:
        Calls that were out are cut off and recorded as ``unsettled``; nothing is waited for.
    """
    settings = settings_with(settings, providers or {})
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
                            show_words=show_words,
                            store=store,
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


def settings_with(settings: Settings | None, own: Mapping[str, object]) -> Settings:
    """``settings`` with a section for each of the caller's own providers that has none.

    Args:
        settings: ``None`` for defaults, in which a single provider of one's own is the one that embeds.
        own: By name.
    """
    chosen = next(iter(own)) if settings is None and len(own) == 1 else None
    settings = Settings() if settings is None else settings
    sections = {name: ProviderSettings(kind="own") for name in own if name not in settings.provider_names}
    if not sections and chosen is None:
        return settings
    embedding = settings.embedding if chosen is None else attrs.evolve(settings.embedding, provider=chosen)
    return attrs.evolve(settings, providers={**settings.providers, **sections}, embedding=embedding)


def _holds_cancelled(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return error.subgroup(trio.Cancelled) is not None
    return isinstance(error, trio.Cancelled)
