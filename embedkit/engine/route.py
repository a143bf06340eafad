"""A route: one provider in use, and the one way to it. Here alone it matters whether a lane stands before it.

Work goes through ``Route.run``, which checks the provider before the first call, splits what is more than one request
may carry, and brings it back as one. Whether a lane admits it, or the provider does by rules of its own, is the
business of ``way``: a hint, a circuit and a hook mean there what they mean to either.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import attrs
import trio

from embedkit.admission.lane import Lane
from embedkit.clocks import ZERO, Clocks
from embedkit.errors import QueueWaitExceeded, UsageError
from embedkit.knowledge.model import Space
from embedkit.providers.guarded import GuardedConnection, GuardedProvider

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from embedkit.admission.ticket import Ticket
    from embedkit.admission.unqueued import Unqueued
    from embedkit.providers.wire import Purpose


@attrs.frozen(eq=False)
class Embeddings:
    """What ``Engine.embed`` gives.

    Attributes:
        vectors: ``(n, dimension) float32``, row i for text i, as the engine gave them.
        clocks: The ticket's three times, in seconds.
        attempts: Provider calls it took.
        provider: Which provider.
        model: Which model.
    """

    vectors: NDArray[np.float32] = attrs.field(repr=False)
    clocks: Clocks
    attempts: int
    provider: str
    model: str


@attrs.frozen(eq=False)
class Route:
    """A provider in use.

    Attributes:
        provider: How it is spoken to.
        way: Who makes the calls: its lane, or, for a provider that no lane governs, their callers.
        capacity: Calls that the settings let be out at once.
    """

    provider: GuardedProvider
    way: Lane[GuardedConnection] | Unqueued[GuardedConnection]
    capacity: int
    _checking: trio.Lock = attrs.field(factory=trio.Lock, init=False)
    _checked: trio.Event = attrs.field(factory=trio.Event, init=False)

    @property
    def is_queued(self) -> bool:
        """Whether a lane governs it."""
        return isinstance(self.way, Lane)

    @property
    def lane(self) -> Lane[GuardedConnection]:
        """Its lane.

        Raises:
            UsageError: It has none.
        """
        if not isinstance(self.way, Lane):
            raise UsageError(f"provider {self.way.name} is unqueued: it is remote, and no lane of ours governs it")
        return self.way

    async def check(self) -> None:
        """Preflight, once; those who come meanwhile wait for it.

        Raises:
            UsageError: An unset key, a model that the engine does not have.

        Cancellation:
            It is checked, or will be by the next who asks.
        """
        if self._checked.is_set():
            return
        async with self._checking:
            if not self._checked.is_set():
                await self.provider.preflight()
                self._checked.set()

    async def run(
        self, texts: Sequence[str], purpose: Purpose, deadline_at: float, make_ticket: Callable[..., Ticket]
    ) -> Embeddings:
        """The vectors of ``texts``, in as many requests, one after the other, as the provider asks for.

        Args:
            texts: One or more.
            purpose: What for.
            deadline_at: When the caller's patience ends.
            make_ticket: Makes the ticket of one request, given ``weight`` and ``inputs``.

        Raises:
            QueueWaitExceeded: The deadline passed while the provider was checked.
            EmbedkitError: See ``Engine.embed``.

        Cancellation:
            As ``Lane.run``, or ``Unqueued.run``.
        """
        if not self._checked.is_set():
            with trio.move_on_at(deadline_at):
                await self.check()
            if not self._checked.is_set():
                raise QueueWaitExceeded(f"provider {self.provider.name}: the deadline passed before anything was sent")
        provider = self.provider
        bought: list[NDArray[np.float32]] = []
        clocks, attempts = ZERO, 0
        for some in _requests(texts, provider.max_inputs):
            ticket = make_ticket(weight=max(provider.weight(len(some)), 1), inputs=len(some))
            bought.append(await self.way.run(partial(GuardedConnection.embed, texts=some, purpose=purpose), ticket))
            clocks += ticket.clocks
            attempts += ticket.attempts
        return Embeddings(_stacked(bought), clocks, attempts, provider.name, provider.model)

    def width(self, batch: int) -> tuple[int, int]:
        """How the indexer is to use it: inputs of a ticket, at most ``batch``, and how many tickets at once.

        With a lane, as many as its ceiling lets be in flight, and one behind each: more would keep no slot busier, and
        each of them would find out by itself that an engine has gone. Without one, as many as may be out.
        """
        batch = min(batch, self.provider.max_inputs or batch)
        if not isinstance(self.way, Lane):
            return batch, self.capacity
        weight, seen = self.provider.weight, self.way.statistics()
        if weight(batch) > 1 and seen.capacity > 1:
            batch = min(batch, seen.ceiling)
        return batch, 2 * max(seen.ceiling // weight(batch), 1)

    def space(self, dimension: int) -> Space:
        """The space of its vectors of ``dimension``."""
        return Space(self.provider.kind, self.provider.model, dimension, dict(self.provider.space_options))


def _requests(texts: Sequence[str], most: int | None) -> Sequence[Sequence[str]]:
    if most is None or len(texts) <= most:
        return (texts,)
    return [texts[start : start + most] for start in range(0, len(texts), most)]


def _stacked(bought: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
    if len(bought) == 1:
        return bought[0]
    import numpy as np

    return np.concatenate(bought)
