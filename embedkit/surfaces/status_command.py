"""``embedkit status``: what is stored, what is outstanding and why, and what happened. It calls nobody."""

from __future__ import annotations

import argparse
import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from embedkit.activity.disk import read_lanes, read_longest_waits, read_report
from embedkit.activity.report import ReportRow
from embedkit.activity.snapshots import StoredLane
from embedkit.admission.snapshot import snapshot_from
from embedkit.admission.whose_turn import whose_turn
from embedkit.database import open_database
from embedkit.errors import UsageError
from embedkit.knowledge.storing.repositories import GIVEN_ROOT, RepositoryRecord
from embedkit.knowledge.storing.store import SqliteStore
from embedkit.probing.rules import Verdict, engine_key
from embedkit.probing.sharing import read_verdict
from embedkit.providers.catalogue import lane_class
from embedkit.settings import Settings
from embedkit.surfaces.exits import DONE, INTERRUPTED, print_json, print_text
from embedkit.surfaces.folders import TENANT
from embedkit.surfaces.interrupts import interruptible
from embedkit.surfaces.status_text import status_text

# Law 6; ``abandoned`` is what a process that died left queued.
_ENDINGS = ("succeeded", "failed", "withdrawn", "shed", "aborted", "unsettled", "abandoned")


@attrs.frozen
class Status:
    """What ``status`` shows.

    Attributes:
        at: Wall-clock time of the look, seconds since 1970.
        settings: What is in force.
        repositories: Every repository in the store.
        activity: The ledger's report over all processes that use this store.
        longest_waits: Seconds, by lane.
        living: The lanes of processes that run now, as each last wrote them down.
        fenced: Chunks that fences leave out, by repository's number and document's path.
        probe: What is known of the provider that embeds; ``None`` if nobody ever asked.
    """

    at: float
    settings: Settings
    repositories: Sequence[RepositoryRecord]
    activity: Sequence[ReportRow]
    longest_waits: Mapping[str, float]
    living: Sequence[StoredLane]
    probe: Verdict | None
    fenced: Mapping[int, Mapping[str, int]] = attrs.field(factory=dict)

    def as_json(self) -> dict[str, Any]:
        """As ``status --json`` prints it."""
        return {
            "at": self.at,
            "store": str(self.settings.store.path),
            "settings": None if self.settings.file is None else str(self.settings.file),
            "age": max(time.time() - self.at, 0.0),
            "lanes": self.lanes(),
            "probe": None if self.probe is None else self.probe.as_json(),
            "access": self.access(),
            "config": self.config(),
            "repositories": [self._repository(record) for record in self.repositories],
            "activity": [row.as_json() for row in self.activity],
        }

    def access(self) -> dict[str, int]:
        """How many repositories can be searched as they should be, and how many cannot."""
        ready = sum(
            1
            for record in self.repositories
            if record.succeeded and not record.outstanding and not self.is_source_gone(record)
        )
        return {"ready": ready, "degraded": len(self.repositories) - ready}

    def config(self) -> dict[str, Any]:
        """What the settings name."""
        named = [item for tenant in self.settings.tenants for item in tenant.repositories]
        missing = [item for item in named if item.path is not None and not item.path.is_dir()]
        return {
            "repositories": len(named),
            "disabled": sum(1 for item in named if not item.enabled),
            "errors": [f"{item.name}: {item.path} is not there" for item in missing],
        }

    def _repository(self, record: RepositoryRecord) -> dict[str, Any]:
        fenced = dict(self.fenced.get(record.id, {}))
        return {**_repository(record, self.at), **self._judged(record), "fenced": fenced}

    def _judged(self, record: RepositoryRecord) -> dict[str, bool]:
        return {"named": not self.is_left_over(record), "trouble": self.is_in_trouble(record)}

    def is_source_gone(self, record: RepositoryRecord) -> bool:
        """Whether the folder that it was read from is not there any more; of a git repository that is not known."""
        root = record.root
        return root not in (None, GIVEN_ROOT) and "://" not in str(root) and not os.path.exists(str(root))

    def is_in_trouble(self, record: RepositoryRecord) -> bool:
        """Whether somebody may want to look at it: all that is not stored whole, or will not be again."""
        last = record.last
        return (
            not record.succeeded
            or bool(record.outstanding or record.streak or self.fenced.get(record.id))
            or (last is not None and last.outcome != "complete")
            or self.is_source_gone(record)
            or self.is_left_over(record)
        )

    def chosen(self, tenant: str | None, *, trouble: bool) -> Status:
        """The same with the tenant's repositories alone, or those in trouble.

        Raises:
            UsageError: The store has no such tenant.
        """
        names = sorted({record.tenant for record in self.repositories})
        if tenant is not None and tenant not in names:
            raise UsageError(f"the store has no tenant {tenant!r}; it has {', '.join(names) or 'none'}")
        kept = [
            record
            for record in self.repositories
            if tenant in (None, record.tenant) and (not trouble or self.is_in_trouble(record))
        ]
        return attrs.evolve(self, repositories=kept)

    def is_left_over(self, record: RepositoryRecord) -> bool:
        """Whether nothing names the repository any more: not the settings, nor a folder that is still there."""
        if record.root == GIVEN_ROOT:
            return False
        if record.tenant == TENANT:
            return record.root is not None and "://" not in record.root and not os.path.isdir(record.root)
        named = {(tenant.name, item.name) for tenant in self.settings.tenants for item in tenant.repositories}
        return bool(named) and (record.tenant, record.name) not in named

    def lanes(self) -> list[dict[str, Any]]:
        """Each lane that was ever used, and the one in force: as all processes that use this store wrote it down."""
        name = self.settings.embedding.provider
        known = [] if lane_class(self.settings.provider(name)) is None else [name]
        used = {row.group.provider for row in self.activity if row.group.disposition == "queued"}
        known += sorted((used | {stored.lane for stored in self.living}) - set(known))
        return [self._lane(name) for name in known]

    def unqueued(self) -> dict[str, int]:
        """Calls in flight of each provider that was used without a lane."""
        found: Counter[str] = Counter()
        for row in self.activity:
            if row.group.disposition == "not-applicable":
                found[row.group.provider] += row.in_flight
        return dict(sorted(found.items()))

    def _lane(self, name: str) -> dict[str, Any]:
        rows = [row for row in self.activity if row.group.provider == name]
        waiting: Counter[str] = Counter()
        totals: Counter[str] = Counter()
        for row in rows:
            waiting[row.group.priority] += row.queued
            totals.update(row.outcomes)
        in_flight = sum(row.in_flight for row in rows)
        described = self.settings.provider(name) if name in self.settings.provider_names else None
        return {
            "provider": name,
            "capacity": None if described is None else described.capacity,
            "in_flight": in_flight,
            "waiting": {priority: count for priority, count in waiting.items() if count},
            "longest_wait": self.longest_waits.get(name, 0.0),
            "totals": {
                "offered": totals.total() + waiting.total() + in_flight,
                "queued": waiting.total(),
                "in_flight": in_flight,
                **{word: totals[word] for word in _ENDINGS},
            },
            "processes": [_process(stored, self.at) for stored in self.living if stored.lane == name],
        }


async def run(given: argparse.Namespace, settings: Settings) -> int:
    """Look, and print.

    Cancellation:
        Nothing was changed.
    """
    status: Status | None = None
    async with interruptible():
        status = (await look(settings)).chosen(given.tenant, trouble=given.trouble)
    if status is None:
        return INTERRUPTED
    if given.json:
        print_json(status.as_json())
    else:
        print_text(status_text(status, shows_all=given.trouble or given.tenant is not None))
    return DONE


async def look(settings: Settings) -> Status:
    """What the knowledge base, and the processes that use it, have written down.

    Raises:
        UsageError: There is no knowledge base.
        StoreError: It cannot be read.

    Cancellation:
        Nothing was changed.
    """
    async with open_database(settings.store.path, create=False, may_be_read_only=True) as database:
        store = SqliteStore(database)
        await store.open()
        now = time.time()
        activity = await read_report(database)
        waits = await read_longest_waits(database, now)
        living = await read_lanes(database, now)
        name = settings.embedding.provider
        probe = await read_verdict(database, name, engine_key(settings.provider(name)), settings.probe, now)
        records = await store.repositories()
        fenced = {record.id: await store.fenced(record) for record in records}
    return Status(now, settings, records, activity, waits, living, probe, fenced)


def _process(stored: StoredLane, now: float) -> dict[str, Any]:
    """One process's lane: whose turn it is there, in words and in figures; without them if another version wrote it."""
    age = max(now - stored.at, 0.0)
    found: dict[str, Any] = {"pid": stored.pid, "host": stored.host, "age": age}
    try:
        snapshot = snapshot_from(stored.snapshot)
    except ValueError:
        return {**found, "turn": None}
    return {**found, "turn": whose_turn(snapshot, age), **snapshot.as_json()}


def _repository(record: RepositoryRecord, now: float) -> dict[str, Any]:
    last = record.last
    return {
        "tenant": record.tenant,
        "name": record.name,
        "revision": record.revision,
        "root": record.root,
        "outstanding": record.outstanding,
        "streak": record.streak,
        "next_due_in": None if record.next_due_at is None else max(record.next_due_at - now, 0.0),
        "last": None
        if last is None
        else {
            "outcome": last.outcome,
            "code": last.code,
            "reason": last.reason,
            "attribution": last.attribution,
            "clocks": last.clocks.as_json(),
            "at": last.at,
        },
    }
