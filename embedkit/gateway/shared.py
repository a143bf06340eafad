"""What all requests of one gateway share."""

from __future__ import annotations

import secrets
import socket
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import count
from typing import TYPE_CHECKING

import trio

from embedkit.gateway.catalogue import Catalogue, Served
from embedkit.gateway.journal import Journal
from embedkit.gateway.keyring import Keyring
from embedkit.gateway.metrics import Metrics
from embedkit.gateway.past import Past
from embedkit.gateway.relaying import Upstream
from embedkit.gateway.runs import Runs
from embedkit.providers.endpoints import endpoint_of

if TYPE_CHECKING:
    from embedkit.admission.circuit import Circuit
    from embedkit.engine import Engine


class Shared:
    """See the module.

    Args:
        engine: Whose lanes stand behind the door.

    Attributes:
        engine: As given.
        settings: The engine's.
        keyring: Who may come.
        catalogue: What is served.
        runs: Whose circuits are kept.
        journal: What has lately happened.
        past: Two minutes of each lane.
        metrics: For ``/metrics``.
        names: Host names, in lower case, under which the page may be asked for.
        closing: Nothing more is let in. Set by ``serving``.
        trips: How many circuits of runs have opened, by provider.
        started_at: Seconds since the epoch.

    Raises:
        UsageError: Nothing can be served, or a key is not set.
    """

    def __init__(self, engine: Engine) -> None:
        settings = engine.settings
        self.engine = engine
        self.settings = settings
        self.keyring = Keyring(settings.gateway.keys, engine.environ)
        self.catalogue = Catalogue(settings)
        self.runs = Runs()
        self.past = Past(self._look)
        self.journal = Journal(lambda: self.past.changed(trio.current_time()))
        listened = [place.host for place in settings.gateway.listen if place.host is not None]
        self.names = frozenset(name.lower() for name in (*settings.gateway.hosts, *listened, socket.gethostname()))
        self.closing = trio.Event()
        self.trips = Counter[str]()
        self.started_at = time.time()
        self.metrics = Metrics(self)
        self._upstreams = {name: self._reach(name, engine.environ) for name in self.catalogue.served}
        # A ticket's id means something beyond this process: in a client's log it must not be another's.
        self._nonce = secrets.token_hex(4)
        self._numbers = count(1)

    @property
    def is_closing(self) -> bool:
        """Whether nothing more is let in."""
        return self.closing.is_set()

    def trip(self, provider: str, circuit: Circuit, error: Exception) -> None:
        """The lane's word that a request of a run has finally timed out: synchronous, before the next take."""
        if not circuit.is_open:
            self.trips[provider] += 1
        circuit.trip(error)

    def upstream(self, provider: str) -> Upstream:
        """The connections to a provider's engine."""
        return self._upstreams[provider]

    def weight(self, served: Served, inputs: int) -> int:
        """How many units of its lane a request takes: each input is a task of its own to all but Ollama."""
        return 1 if served.kind == "ollama" else inputs

    def new_ticket_id(self) -> str:
        """The id of one more ticket."""
        return f"{self._nonce}-{next(self._numbers)}"

    async def aclose(self) -> None:
        """Close what is open to the engines.

        Cancellation:
            It is closed.
        """
        for upstream in self._upstreams.values():
            await upstream.aclose()

    def _look(self) -> Iterator[tuple[str, int, float]]:
        for name in self.catalogue.served:
            seen = self.engine.lane(name).statistics()
            yield name, seen.weight_in_flight, seen.longest_wait

    def _reach(self, name: str, environ: Mapping[str, str]) -> Upstream:
        reached = endpoint_of(self.settings, name, environ)
        return Upstream(reached.endpoint, reached.secrets)
