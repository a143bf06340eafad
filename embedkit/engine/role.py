"""Doing what one process at a time does for a store: waiting for the role, keeping it, and giving it back.

Tests: tests/engine/test_role.py.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import trio

from embedkit.activity.process import this_process
from embedkit.errors import StoreError, StoreLocked
from embedkit.knowledge.storing import roles

if TYPE_CHECKING:
    from embedkit.database import Database

_LOOK_SECONDS = 20.0  # a holder that leaves gives the role back, and is not waited for any longer
_RELEASE_SECONDS = 1.0


async def run_as(
    database: Database,
    name: str,
    work: Callable[[], Awaitable[object]],
    *,
    on_wait: Callable[[str], object] | None = None,
) -> None:
    """Do ``work`` while this process alone has the role ``name`` of the store.

    It is waited for as long as another has it. If it is lost (the process was stopped for a minute, the clock jumped),
    the work is cancelled and the role is waited for again.

    Args:
        database: The store's file.
        name: Of the role.
        work: Ends when there is no more to do.
        on_wait: Told once, while another has it, who that is.

    Raises:
        StoreError: The file cannot be used.
        Exception: Whatever ``work`` raises.

    Cancellation:
        The work has ended, and the role was given back.
    """
    await database.migrate(roles.COMPONENT, roles.STEPS)
    while True:
        token = await _taken(database, name, on_wait)
        try:
            if await _worked(database, name, token, work):
                return
        finally:
            with trio.move_on_after(_RELEASE_SECONDS, shield=True), suppress(StoreError):
                await database.write(partial(roles.release, name=name, token=token))


async def _taken(database: Database, name: str, on_wait: Callable[[str], object] | None) -> str:
    was_told = False
    while True:
        found = await database.write(
            lambda connection: roles.take(connection, name, this_process(), time.time()),
        )
        if isinstance(found, str):
            return found
        if on_wait is not None and not was_told:
            on_wait(found.holder)
        was_told = True
        await trio.sleep(min(found.left, _LOOK_SECONDS))


async def _worked(database: Database, name: str, token: str, work: Callable[[], Awaitable[object]]) -> bool:
    """Whether the work ended by itself; else the role was lost."""
    failed: list[Exception] = []
    is_done = False
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_keep, database, name, token, nursery.cancel_scope)
        try:
            await work()
            is_done = True
        except Exception as error:  # kept aside, so that the nursery makes no group of it
            failed.append(error)
        nursery.cancel_scope.cancel()
    if failed:
        raise failed[0]
    return is_done


async def _keep(database: Database, name: str, token: str, working: trio.CancelScope) -> None:
    renewed = partial(roles.renew, name=name, token=token)
    while True:
        await trio.sleep(roles.ROLE_SECONDS / 3)
        try:
            if not await database.write(lambda connection: renewed(connection, now=time.time())):
                break
        except StoreLocked:
            continue  # it is ours for a while yet
        except StoreError:
            break
    working.cancel()
