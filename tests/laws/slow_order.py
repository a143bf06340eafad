"""Law 4 in the plainest words: lists, searched from the front, every time. The real order is checked against it."""

from __future__ import annotations

from collections.abc import Iterator

from embedkit.admission.room import Room
from embedkit.admission.waiting import Waiting


class SlowOrder:
    """As ``embedkit.admission.order.Order``, in time proportional to what waits."""

    def __init__(self, *, max_overtakes: int = 1, max_age: float = 30.0, max_passes: int = 4) -> None:
        self.max_overtakes = max_overtakes
        self.max_age = max_age
        self.max_passes = max_passes
        self.waiting: list[Waiting] = []
        self.head: Waiting | None = None
        self.head_since = 0.0
        self.overtaken = 0
        self.probes_before_head = 0
        self.first_probe: Waiting | None = None
        self.probe_since = 0.0
        self.passed = 0
        self.ring: list[str | None] = []
        self.credit: dict[str | None, int] = {}
        self.visited = False
        self.quantum = 1
        self.passed_people: list[Waiting] = []

    def __len__(self) -> int:
        return len(self.waiting)

    def __iter__(self) -> Iterator[Waiting]:
        return iter(self.waiting)

    def first(self, priority: str, tenant: str | None = None) -> Waiting | None:
        for ticket in self.waiting:
            if ticket.priority == priority and (priority != "batch" or ticket.tenant == tenant):
                return ticket
        return None

    def add(self, ticket: Waiting, now: float) -> None:
        self.waiting.append(ticket)
        if ticket.priority == "batch":
            self.quantum = max(self.quantum, ticket.weight)
            if ticket.tenant not in self.ring:
                self.ring.append(ticket.tenant)
                self.credit[ticket.tenant] = 0
        self.look_again(now)

    def remove(self, ticket: Waiting, now: float) -> None:
        self.waiting.remove(ticket)
        if ticket.priority == "batch" and self.first("batch", ticket.tenant) is None:
            if ticket.tenant == self.ring[0]:
                self.visited = False
            self.ring.remove(ticket.tenant)
            del self.credit[ticket.tenant]
        if ticket is self.head:
            self.head = None
        self.look_again(now)

    def look_again(self, now: float) -> None:
        """Somebody must be head if a batch ticket waits, and the first probe must be the first probe."""
        if self.head is None and self.ring:
            self.head, self.head_since, self.overtaken = self.next_head(), now, 0
            self.probes_before_head = 0
        probe = self.first("probe")
        if probe is not self.first_probe:
            self.first_probe, self.probe_since, self.passed = probe, now, 0

    def next_head(self) -> Waiting:
        """Deficit round robin as in the textbook: a visit brings credit, and lasts while the credit does."""
        while True:
            tenant = self.ring[0]
            if not self.visited:
                self.credit[tenant] += self.quantum
                self.visited = True
            ticket = self.first("batch", tenant)
            assert ticket is not None
            if self.credit[tenant] >= ticket.weight:
                return ticket
            self.ring.append(self.ring.pop(0))
            self.visited = False

    def turn(self, now: float, room: Room) -> Waiting | None:
        """Whose turn it is, whether it fits or not."""
        person, head, probe = self.first("interactive"), self.head, self.first_probe
        probe_is_old = now - self.probe_since >= self.max_age
        head_is_old = now - self.head_since >= self.max_age
        head_is_held = head is not None and room.held_by_ceiling(head)
        may_pass_head = head is None or self.probes_before_head == 0
        probe_is_due = probe is not None and (
            self.passed >= self.max_passes or (may_pass_head and (probe_is_old or head_is_held))
        )
        by_age = person not in self.passed_people
        probe_insists = self.passed >= self.max_passes or (probe_is_old and by_age)
        head_insists = self.overtaken >= self.max_overtakes or (head_is_old and by_age)
        queue: list[Waiting | None] = []
        # Those whose bound is spent go first, unless what they lack is not theirs to take.
        head_blocks = head is not None and head_insists and not room.held_by_ceiling(head)
        if probe_is_due and probe is not None and (probe_insists or head_blocks) and not room.held_by_ceiling(probe):
            queue.append(probe)
        if head is not None and head_insists and not probe_is_due and not room.held_by_ceiling(head):
            queue.append(head)
        queue.append(person)
        if probe_is_due:
            queue += [probe, head]
        else:
            queue += [head, probe]
        return next((ticket for ticket in queue if ticket is not None), None)

    def choose(self, now: float, room: Room) -> Waiting | None:
        ticket = self.turn(now, room)
        return ticket if ticket is not None and room.fits(ticket) else None

    def commit(self, ticket: Waiting, now: float, room: Room) -> None:
        if ticket.priority == "interactive" and self.head is not None and not room.held_by_ceiling(self.head):
            self.overtaken += 1
        if ticket.priority == "probe":
            self.probes_before_head += 1
        if ticket.priority == "batch":
            self.credit[ticket.tenant] -= ticket.weight
            self.passed += 1
        if ticket.priority != "interactive":
            self.passed_people = [other for other in self.waiting if other.priority == "interactive"]
        self.remove(ticket, now)
