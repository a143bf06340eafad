"""Keeping a repository's lease while it is worked on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from embedkit.errors import EmbedkitError, StoreLocked

if TYPE_CHECKING:
    from embedkit.knowledge.storing.leases import Lease
    from embedkit.knowledge.storing.protocol import Store


async def keep_lease(store: Store, lease: Lease, every: float) -> EmbedkitError:
    """Renew ``lease`` every so many seconds until that fails; returns the failure.

    Cancellation:
        The lease is as it was renewed last.
    """
    while True:
        await trio.sleep(every)
        try:
            await store.renew(lease)
        except StoreLocked:
            continue  # it is still ours for a while, and every transaction of the work renews it as well
        except EmbedkitError as error:
            return error
