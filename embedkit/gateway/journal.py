"""What has lately happened, for whoever looks: the tickets that are here, and the last hundred that ended.

Written by the door, read by the page, the metrics and the estimate of ``Retry-After``. Names and numbers alone: no
text, no vector and no key.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import attrs
import trio

from embedkit.clocks import ZERO, Clocks

_KEPT = 100
# How much the newest answer counts in the mean of what an answer takes.
_NEWEST = 0.1


@attrs.define(eq=False)
class Entry:
    """One request that has a ticket.

    Attributes:
        ticket: Its id.
        provider: Whose lane it is in.
        model: As the engine knows it.
        priority: Its class.
        tenant: Whose it is.
        key: The name of the key that it came with.
        run: Its run.
        inputs: How many it carries.
        path: What was asked.
        offered_at: Instant, as the next.
        dispatched_at: When a slot took it; ``None`` while it waits.
        status: What its client was answered; ``None`` while it is here, and where the client left.
        outcome: In law 6's words, and ``queued`` or ``in-flight``.
        code: Why it failed.
        attempts: Calls made for it.
        clocks: Its three times, once it is settled.
    """

    ticket: str
    provider: str
    model: str
    priority: str
    tenant: str | None
    key: str
    run: str | None
    inputs: int
    path: str
    offered_at: float
    dispatched_at: float | None = None
    status: int | None = None
    outcome: str = "queued"
    code: str | None = None
    attempts: int = 0
    clocks: Clocks = ZERO

    def as_json(self, now: float) -> dict[str, Any]:
        """As the page reads it."""
        return {
            "ticket": self.ticket,
            "provider": self.provider,
            "class": self.priority,
            "tenant": self.tenant,
            "run": self.run,
            "inputs": self.inputs,
            "path": self.path,
            "outcome": self.outcome,
            "status": self.status,
            "code": self.code,
            "attempts": self.attempts,
            "age": round(now - self.offered_at, 3),
            "since": round(now - (self.offered_at if self.dispatched_at is None else self.dispatched_at), 3),
            **{name: round(seconds, 6) for name, seconds in self.clocks.as_json().items()},
        }


class Journal:
    """See the module.

    Args:
        changed: Called at each change.

    Attributes:
        version: Grows with each change.
        listeners: Each is called with each entry that has ended.
    """

    def __init__(self, changed: Callable[[], object] | None = None) -> None:
        self.version = 0
        self._tell = changed
        self.listeners: list[Callable[[Entry], object]] = []
        # Made when somebody waits: most changes have nobody to tell.
        self._changed: trio.Event | None = None
        self._here: dict[str, Entry] = {}
        self._last: deque[Entry] = deque(maxlen=_KEPT)
        self._queued_of_key = Counter[str]()
        self._mean_seconds: dict[str, float] = {}

    def open(self, entry: Entry) -> None:
        """A request waits for a slot."""
        self._here[entry.ticket] = entry
        self._note_change()
        self._queued_of_key[entry.key] += 1

    def dispatched(self, entry: Entry, now: float) -> None:
        """A slot has taken it; a later attempt changes nothing."""
        if entry.dispatched_at is None:
            entry.dispatched_at = now
            entry.outcome = "in-flight"
            self._queued_of_key[entry.key] -= 1
            self._note_change()

    def close(self, entry: Entry) -> None:
        """It has ended, as its fields say."""
        del self._here[entry.ticket]
        if entry.dispatched_at is None:
            self._queued_of_key[entry.key] -= 1
        if not self._queued_of_key[entry.key]:
            del self._queued_of_key[entry.key]
        self._last.append(entry)
        if entry.outcome == "succeeded":
            mean, taken = self._mean_seconds.get(entry.provider), entry.clocks.provider_time
            self._mean_seconds[entry.provider] = taken if mean is None else mean + _NEWEST * (taken - mean)
        for listener in self.listeners:
            listener(entry)
        self._note_change()

    async def change_after(self, version: int) -> None:
        """Return when more has happened than at ``version``.

        Cancellation:
            Nothing changes.
        """
        await trio.lowlevel.checkpoint()
        while self.version == version:
            if self._changed is None:
                self._changed = trio.Event()
            await self._changed.wait()

    def _note_change(self) -> None:
        self.version += 1
        if self._tell is not None:
            self._tell()
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    def queued_of(self, key: str) -> int:
        """How many requests of a key wait."""
        return self._queued_of_key.get(key, 0)

    def mean_seconds(self, provider: str) -> float | None:
        """What an answer of a provider has lately taken; ``None`` before the first."""
        return self._mean_seconds.get(provider)

    def here(self) -> Iterator[Entry]:
        """Those that wait or are out, in the order in which they came."""
        return iter(self._here.values())

    def last(self) -> Iterator[Entry]:
        """The last hundred that ended, the newest first."""
        return reversed(self._last)

    @property
    def means(self) -> Mapping[str, float]:
        """Of each provider that has answered: what an answer takes."""
        return self._mean_seconds
