"""``/metrics``: what Prometheus is told. Made by ``prometheus-client``, which the extra ``gateway`` brings along.

What a lane counts is read as it is asked for; how long things took is observed as each request ends. Tenants can be
many, and a series of each would be as many series: the fifty busiest have their own, the rest is ``other``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import attrs

from embedkit.admission.waiting import CLASSES
from embedkit.gateway.refusals import Refusal

if TYPE_CHECKING:
    from embedkit.gateway.journal import Entry
    from embedkit.gateway.shared import Shared

OTHER = "other"
NOBODY = ""
_BUCKETS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
_TENANTS_SHOWN = 50
_TENANTS_KEPT = 2_000
_COUNTED = ("offered", "succeeded", "failed", "withdrawn", "shed", "aborted", "unsettled")
_WORDS = ("healthy", "degraded", "unknown")


@attrs.define
class _OfTenant:
    """What one tenant had so far."""

    requests: int = 0
    seconds: float = 0.0


class Tenants:
    """What each tenant had; of more than two thousand, those that had least are added up."""

    def __init__(self) -> None:
        self._had: dict[str, _OfTenant] = {}

    def add(self, tenant: str | None, seconds: float) -> None:
        """A request of a tenant has ended."""
        had = self._had.setdefault(NOBODY if tenant is None else tenant, _OfTenant())
        had.requests += 1
        had.seconds += seconds
        if len(self._had) > _TENANTS_KEPT:
            self._had = dict(self._busiest(_TENANTS_KEPT // 2))

    def busiest(self) -> Iterator[tuple[str, _OfTenant]]:
        """The fifty that had the most of the engines' time, and all others as one."""
        return iter(self._busiest(_TENANTS_SHOWN))

    def _busiest(self, count: int) -> list[tuple[str, _OfTenant]]:
        ordered = sorted(self._had.items(), key=lambda item: -item[1].seconds)
        shown = [item for item in ordered if item[0] != OTHER][:count]
        names = {name for name, _ in shown}
        rest = [had for name, had in ordered if name not in names]
        if rest:
            shown.append((OTHER, _OfTenant(sum(one.requests for one in rest), sum(one.seconds for one in rest))))
        return shown


class Metrics:
    """See the module.

    Args:
        shared: What is told of.
    """

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._tenants = Tenants()
        self._registry: Any = None
        try:
            import prometheus_client
        except ImportError:
            return
        self._library = prometheus_client
        self._registry = prometheus_client.CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        labels = ("lane", "class")
        self._clocks = {
            name: prometheus_client.Histogram(
                f"embedkit_{name}_seconds", meaning, labels, buckets=_BUCKETS, registry=self._registry
            )
            for name, meaning in (
                ("queue_wait", "Seconds from offer to dispatch."),
                ("provider_time", "Seconds from dispatch to settlement, less waits between attempts."),
                ("retry_wait", "Seconds slept between attempts."),
            )
        }
        shared.journal.listeners.append(self._ended)

    def text(self) -> tuple[bytes, bytes]:
        """The content type and the body.

        Raises:
            Refusal: ``prometheus-client`` is not installed.
        """
        if self._registry is None:
            message = 'metrics need prometheus-client: pip install "trio-embedkit[gateway]"'
            raise Refusal(501, "metrics_not_installed", message)
        body: bytes = self._library.generate_latest(self._registry)
        return b"text/plain; version=0.0.4; charset=utf-8", body

    def collect(self) -> Iterable[Any]:
        """What is read as it is asked for. The registry's way to ask."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        totals = CounterMetricFamily("embedkit_tickets", "Tickets by how they ended.", labels=("lane", "outcome"))
        gauges = {
            name: GaugeMetricFamily(f"embedkit_{name}", meaning, labels=("lane",))
            for name, meaning in (
                ("capacity", "Units that may be in flight."),
                ("in_flight", "Tickets that are dispatched and not settled."),
                ("weight_in_flight", "Units that they take."),
                ("longest_wait_seconds", "Seconds that the longest waiting ticket has waited."),
                ("held_seconds", "Seconds for which the engine still wants to be left alone."),
            )
        }
        waiting = GaugeMetricFamily("embedkit_waiting", "Tickets that wait for a slot.", labels=("lane", "class"))
        verdicts = GaugeMetricFamily("embedkit_probe_verdict", "1 for what is known.", labels=("lane", "verdict"))
        trips = CounterMetricFamily("embedkit_circuit_trips", "Circuits of runs that opened.", labels=("lane",))
        for name in self._shared.catalogue.served:
            seen = self._shared.engine.lane(name).statistics()
            for word in _COUNTED:
                totals.add_metric((name, word), getattr(seen.totals, word))
            gauges["capacity"].add_metric((name,), seen.capacity)
            gauges["in_flight"].add_metric((name,), seen.tickets_in_flight)
            gauges["weight_in_flight"].add_metric((name,), seen.weight_in_flight)
            gauges["longest_wait_seconds"].add_metric((name,), seen.longest_wait)
            gauges["held_seconds"].add_metric((name,), seen.held_for)
            for priority in CLASSES:
                waiting.add_metric((name, priority), seen.queued.get(priority, 0))
            known = self._shared.engine.probes.verdict(name).verdict
            for verdict in _WORDS:
                verdicts.add_metric((name, verdict), float(known == verdict))
            trips.add_metric((name,), self._shared.trips[name])
        yield from (totals, *gauges.values(), waiting, verdicts, trips)
        yield from self._of_tenants()

    def describe(self) -> Iterable[Any]:
        """Nothing: what there is, is seen as it is asked for."""
        return ()

    def _of_tenants(self) -> Iterator[Any]:
        from prometheus_client.core import GaugeMetricFamily

        # Gauges: a tenant that falls from the fifty leaves the sum that is called other, which then shrinks.
        requests = GaugeMetricFamily("embedkit_tenant_requests", "Requests that ended.", labels=("tenant",))
        seconds = GaugeMetricFamily("embedkit_tenant_provider_seconds", "Engine time they took.", labels=("tenant",))
        for tenant, had in self._tenants.busiest():
            requests.add_metric((tenant,), had.requests)
            seconds.add_metric((tenant,), had.seconds)
        yield from (requests, seconds)

    def _ended(self, entry: Entry) -> None:
        self._tenants.add(entry.tenant, entry.clocks.provider_time)
        for name, histogram in self._clocks.items():
            if name == "queue_wait" or entry.dispatched_at is not None:
                histogram.labels(entry.provider, entry.priority).observe(getattr(entry.clocks, name))
