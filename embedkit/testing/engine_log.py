"""What a scripted engine saw and did, request by request, with waits that do not poll."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Literal

import attrs
import trio

RequestOutcome = Literal["queued", "computing", "computed", "answered", "refused", "broken", "stopped"]


@attrs.define(eq=False)
class RequestRecord:
    """One embedding request; it is filled in as the request goes on.

    Attributes:
        number: Counted from 1 in order of arrival.
        path: What was asked.
        inputs: How many texts.
        hashes: SHA-256 of each, in hex: enough to see that none was bought twice.
        arrived_at: On trio's clock, as the others.
        started_at: When it got its first slot.
        ended_at: When the engine had done with it.
        outcome: ``computed`` is an end as well: the vectors were ready, and nobody was there to take them.
        client_left: Whether the client closed the connection before it had its reply.
        computed: How many of its inputs were computed.
    """

    number: int
    path: str
    inputs: int
    hashes: tuple[str, ...] = attrs.field(repr=False)
    arrived_at: float
    started_at: float | None = None
    ended_at: float | None = None
    outcome: RequestOutcome = "queued"
    client_left: bool = False
    computed: int = 0


@attrs.define(eq=False)
class EngineLog:
    """All requests of one engine.

    Attributes:
        records: In order of arrival.
        listings: How often something other than embeddings was asked: models, health.
        connections: How many connections were opened so far.
        open_connections: How many are open now.
        busy_seconds: Seconds that slots were taken, summed over the slots.
        most_queued: The most units of work that ever waited in the engine for a slot.
    """

    records: list[RequestRecord] = attrs.field(factory=list)
    listings: int = 0
    connections: int = 0
    open_connections: int = 0
    busy_seconds: float = 0.0
    most_queued: int = 0
    # Made when somebody waits: most changes have nobody to tell.
    _changed: trio.Event | None = attrs.field(default=None, init=False, repr=False)

    @property
    def requests(self) -> int:
        """Embedding requests that arrived."""
        return len(self.records)

    @property
    def inputs_computed(self) -> int:
        """Inputs that were computed, for whomever."""
        return sum(record.computed for record in self.records)

    @property
    def inputs_unwanted(self) -> int:
        """Inputs that were computed although their client had left."""
        return sum(record.computed for record in self.records if record.client_left)

    def add(self, path: str, texts: tuple[str, ...]) -> RequestRecord:
        """The record of a request that arrived now."""
        record = RequestRecord(
            number=len(self.records) + 1,
            path=path,
            inputs=len(texts),
            hashes=tuple(hash_of(text) for text in texts),
            arrived_at=trio.current_time(),
        )
        self.records.append(record)
        self.changed()
        return record

    def end(self, record: RequestRecord, outcome: RequestOutcome) -> None:
        """``record`` ended now."""
        record.outcome = outcome
        record.ended_at = trio.current_time()
        self.changed()

    def changed(self) -> None:
        """Wake everybody who waits for something here."""
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    async def wait_until(self, happened: Callable[[EngineLog], bool]) -> None:
        """Wait until ``happened`` holds; it is asked again after each change.

        Cancellation:
            Nothing changes.
        """
        await trio.lowlevel.checkpoint()
        while not happened(self):
            if self._changed is None:
                self._changed = trio.Event()
            await self._changed.wait()


def hash_of(text: str) -> str:
    """SHA-256 of ``text`` in hex, as ``RequestRecord.hashes`` has it."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
