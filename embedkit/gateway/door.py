"""One request through the door: read, decided about, and either answered here or sent through its lane.

Nothing is decided in this file that the pure ones can decide. It reads the body, makes the ticket, waits in the lane,
and writes the answer; beside the wait a task listens for the client's leaving, which cancels it. So a client that
leaves while it is queued has left the lane in that step, and one whose call is out is aborted or detached, by its
lane's kind.

Tested in ``tests/gateway``: ``test_openai.py``, ``test_ollama.py``, ``test_leaving.py``, ``test_runs.py``.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from functools import partial

import orjson
import trio

from embedkit.admission.ticket import Ids, Ticket
from embedkit.clocks import Clocks
from embedkit.errors import EmbedkitError, LaneFull, QueueWaitExceeded
from embedkit.gateway.asked import AT_ONCE, Asked, read_body, with_model
from embedkit.gateway.catalogue import Served
from embedkit.gateway.delivery import Delivery
from embedkit.gateway.inbound import ClientGoneError, Header, Inbound, Request
from embedkit.gateway.journal import Entry
from embedkit.gateway.keyring import Client
from embedkit.gateway.looking import administer, answer_look
from embedkit.gateway.paths import ADMINISTRATION, QUEUED, Queued, is_ours
from embedkit.gateway.refusals import Refusal, closing, refusal_of, seconds_until_room
from embedkit.gateway.relaying import Answer, Outgoing, Relaying
from embedkit.gateway.runs import Run
from embedkit.gateway.shared import Shared
from embedkit.gateway.translating import OPENAI_PATH, from_openai, to_openai
from embedkit.gateway.visitors import check_visitor
from embedkit.gateway.wishes import read_wishes

logger = logging.getLogger("embedkit.gateway")

JSON: Header = (b"content-type", b"application/json")

# A lane gives a person's attempt without a deadline a limit of seconds, made for short embeddings, and tries a timeout
# again. Here the ladder's own limit holds for everybody: an unchanged client may send what takes minutes. With a
# deadline a lane does neither. Ten years stand for "none".
_NO_DEADLINE = 10 * 365 * 86_400.0
_PASSED_ON = ("accept", "traceparent", "tracestate", "user-agent")
_READERS = trio.CapacityLimiter(2)


async def answer_request(shared: Shared, inbound: Inbound, request: Request) -> None:
    """Answer one request.

    Raises:
        Refusal: As which it is to be answered.
        ClientGoneError: There is nobody to answer any more.

    Cancellation:
        The client's answer is cut short.
    """
    if is_ours(request.path):
        check_visitor(request.headers, shared.names, is_local=inbound.is_local)
    queued = QUEUED.get(request.path)
    if queued is None and request.path not in ADMINISTRATION:
        await answer_look(shared, inbound, request)
        return
    client = shared.keyring.client(request.headers)
    if queued is None:
        if not shared.settings.gateway.administration:
            raise _no_administration(request.path)
        await administer(shared, inbound, request)
        return
    if request.method != "POST":
        raise Refusal(405, "method_not_allowed", f"{request.path} is asked with POST", allow="POST")
    body = await inbound.read_body()
    if len(body) <= AT_ONCE:
        asked = read_body(body, queued)
    else:
        asked = await trio.to_thread.run_sync(read_body, body, queued, limiter=_READERS)
    await _Queueing(shared, inbound, request, client, queued, asked, body).run()


def _no_administration(path: str) -> Refusal:
    message = f"{path} changes what an engine has; ask the engine itself, or set gateway.administration"
    return Refusal(403, "administration", message)


class _Queueing:
    """One request that takes a slot."""

    def __init__(
        self,
        shared: Shared,
        inbound: Inbound,
        request: Request,
        client: Client,
        queued: Queued,
        asked: Asked,
        body: bytes,
    ) -> None:
        self._shared = shared
        self._inbound = inbound
        self._client = client
        self._served = served = shared.catalogue.find(asked.model, queued.dialect)
        self._wishes = read_wishes(request.headers, client)
        self._dialect = queued.dialect
        self._outgoing = _outgoing(request, served, queued, asked, body)
        self._is_translated = _is_translated(queued, served)
        self._asked_model = asked.model
        self._inputs = asked.inputs
        self._path = request.path
        self._role = "embedding" if queued.embeds else "chat"

    async def run(self) -> None:
        """See ``answer_request``.

        Cancellation:
            The ticket is withdrawn, aborted or detached.
        """
        shared, wishes = self._shared, self._wishes
        if shared.is_closing:
            raise closing()
        self._check_room()
        now = trio.current_time()
        self._ticket_id = shared.new_ticket_id()
        run = None if wishes.run is None else shared.runs.enter(wishes.tenant, wishes.run, now)
        self._ticket = self._make_ticket(now, run)
        self._entry = Entry(
            self._ticket_id,
            self._served.provider,
            self._served.model,
            wishes.priority,
            wishes.tenant,
            self._client.name,
            wishes.run,
            self._inputs,
            self._path,
            now,
        )
        shared.journal.open(self._entry)
        try:
            await self._through_the_lane()
        finally:
            if run is not None:
                assert wishes.run is not None
                shared.runs.leave(wishes.tenant, wishes.run, run, trio.current_time())

    def _check_room(self) -> None:
        most = self._client.max_queued
        if most is not None and self._shared.journal.queued_of(self._client.name) >= most:
            message = f"{most} requests of the key {self._client.name!r} are waiting already (gateway.keys.max_queued)"
            raise Refusal(429, "lane_full", message, self._seconds_until_room(), "queue")

    def _make_ticket(self, now: float, run: Run | None) -> Ticket:
        wishes, shared = self._wishes, self._shared
        patience = _NO_DEADLINE if wishes.deadline == math.inf else wishes.deadline
        ticket = Ticket(
            priority=wishes.priority,
            weight=shared.weight(self._served, self._inputs),
            inputs=self._inputs,
            tenant=wishes.tenant,
            deadline_at=now + patience,
            circuit=None if run is None else run.circuit,
            on_provider_timeout=None if run is None else partial(shared.trip, self._served.provider, run.circuit),
            ids=Ids(service="gateway", stage="query", role=self._role, run=wishes.run),
        )
        waits = shared.settings.gateway.queue_deadline
        if waits:
            ticket.scope.deadline = min(ticket.deadline_at, now + waits)
        return ticket

    async def _through_the_lane(self) -> None:
        shared, entry, ticket = self._shared, self._entry, self._ticket
        lane = shared.engine.lane(self._served.provider)
        answer: Answer | None = None
        failure: EmbedkitError | None = None
        is_over = False
        try:
            async with trio.open_nursery() as nursery:
                delivery = Delivery(self._inbound, nursery.cancel_scope.cancel)
                relaying = Relaying(
                    shared.upstream(self._served.provider),
                    self._outgoing,
                    delivery,
                    shared.settings.timeout_for(self._served.provider, model=self._served.model),
                    dispatched=self._dispatched,
                    stream_headers=self._headers_at_start,
                )
                nursery.start_soon(self._listen, nursery.cancel_scope)
                try:
                    answer = await lane.run_nowait(relaying.attempt, ticket)
                except EmbedkitError as error:
                    failure = error
                finally:
                    # Whoever still writes for this request writes for nobody.
                    if answer is None and failure is None and not relaying.is_whole:
                        delivery.leave()
                is_over = True
                nursery.cancel_scope.cancel()
        finally:
            self._write_down(answer, failure, relaying, is_over=is_over)
        if not is_over or delivery.is_gone:
            if delivery.has_stalled:
                stall = shared.settings.gateway.write_stall
                logger.warning(
                    "ticket %s: its client did not read for %g s; it is taken to be gone", entry.ticket, stall
                )
            raise ClientGoneError
        if failure is not None:
            await self._refuse(failure, relaying, delivery)
        elif answer is not None:
            answer = self._translated(answer)
            entry.status = answer.status
            await self._inbound.answer(answer.status, [*answer.headers, *self._headers(ticket.clocks)], answer.body)
        else:
            await self._inbound.finish()

    def _translated(self, answer: Answer) -> Answer:
        if not self._is_translated:
            return answer
        return Answer(answer.status, [JSON], from_openai(answer.body, self._path, self._asked_model))

    async def _listen(self, scope: trio.CancelScope) -> None:
        await self._inbound.until_gone()
        scope.cancel()

    def _dispatched(self) -> None:
        """An attempt begins. The bound on the wait in the queue was for the wait in the queue."""
        now = trio.current_time()
        if self._entry.dispatched_at is None:
            self._ticket.scope.deadline = self._ticket.deadline_at
        self._shared.journal.dispatched(self._entry, now)

    async def _refuse(self, failure: EmbedkitError, relaying: Relaying, delivery: Delivery) -> None:
        if delivery.has_begun:
            # An answer that has begun can only break off.
            raise ClientGoneError
        told = self._headers(self._ticket.clocks)
        if relaying.refused is not None and failure is relaying.refusal:
            passed = relaying.refused
            self._entry.status = passed.status
            await self._inbound.answer(passed.status, [*passed.headers, *told], passed.body)
            return
        refusal = refusal_of(failure, retry_after=self._seconds_until_room())
        self._entry.status = refusal.status
        document = orjson.dumps(refusal.document(self._dialect))
        await self._inbound.answer(refusal.status, [JSON, *refusal.headers(), *told], document)

    def _write_down(
        self, answer: Answer | None, failure: EmbedkitError | None, relaying: Relaying, *, is_over: bool
    ) -> None:
        entry, ticket = self._entry, self._ticket
        entry.clocks, entry.attempts = ticket.clocks, ticket.attempts
        if failure is not None:
            entry.code = failure.durable_code
            entry.outcome = _ending(failure) if not ticket.attempts else "failed"
        elif answer is not None or relaying.is_whole:
            entry.outcome = "succeeded"
            entry.status = entry.status or 200
        elif entry.dispatched_at is None:
            entry.outcome = "withdrawn"
        else:
            entry.outcome = "left"
        if entry.clocks == (0.0, 0.0, 0.0) and not is_over:
            # Its call is still out, or it never was: what is known is how long it was here.
            now = trio.current_time()
            at = now if entry.dispatched_at is None else entry.dispatched_at
            entry.clocks = Clocks(at - entry.offered_at, now - at, 0.0)
        self._shared.journal.close(entry)

    def _seconds_until_room(self) -> int:
        seen = self._shared.engine.lane(self._served.provider).statistics()
        mean = self._shared.journal.mean_seconds(self._served.provider)
        return seconds_until_room(sum(seen.queued.values()), seen.capacity, mean)

    def _headers(self, clocks: Clocks) -> Sequence[Header]:
        """What an answer says of its ticket."""
        return [
            (b"x-embedkit-queue-wait", b"%.6f" % clocks.queue_wait),
            (b"x-embedkit-provider-time", b"%.6f" % clocks.provider_time),
            (b"x-embedkit-retry-wait", b"%.6f" % clocks.retry_wait),
            *self._counted(),
        ]

    def _headers_at_start(self) -> Sequence[Header]:
        """The same of an answer that is only beginning: how long the provider will take is not known."""
        assert self._entry.dispatched_at is not None
        waited = self._entry.dispatched_at - self._entry.offered_at
        return [(b"x-embedkit-queue-wait", b"%.6f" % waited), *self._counted()]

    def _counted(self) -> Sequence[Header]:
        return [
            (b"x-embedkit-attempts", b"%d" % self._ticket.attempts),
            (b"x-embedkit-ticket", self._ticket_id.encode("ascii")),
        ]


def _outgoing(request: Request, served: Served, queued: Queued, asked: Asked, body: bytes) -> Outgoing:
    """What the engine is sent for ``request``.

    Raises:
        Refusal: The engine does not speak this dialect.
    """
    path = queued.path
    if _is_translated(queued, served):
        body = to_openai(asked.document, path, served.model)
        return Outgoing(OPENAI_PATH, body, _passed_on(request), streams=False, is_kept=True)
    if queued.dialect == "ollama" and served.kind != "ollama":
        message = f"the model {asked.model!a} speaks OpenAI's dialect; ask it at {_openai_path(queued)}"
        raise Refusal(400, "other_dialect", message)
    if served.kind != "ollama":
        path = path.removeprefix("/v1")  # its base address ends in whatever precedes it
    name = served.own_name(asked.model)
    if name is not None:
        body = with_model(body, asked.document, name)
    return Outgoing(path, body, _passed_on(request), asked.streams)


def _is_translated(queued: Queued, served: Served) -> bool:
    return queued.dialect == "ollama" and queued.embeds and served.kind != "ollama"


def _passed_on(request: Request) -> list[Header]:
    return [
        (header.encode("ascii"), value.encode("latin-1"))
        for header in _PASSED_ON
        if (value := request.headers.get(header)) is not None
    ]


def _ending(failure: EmbedkitError) -> str:
    """How a ticket ended for which no call was made."""
    if isinstance(failure, LaneFull):
        return "refused"
    return "withdrawn" if isinstance(failure, QueueWaitExceeded) else "shed"


def _openai_path(queued: Queued) -> str:
    return "/v1/completions" if queued.path == "/api/generate" else "/v1/chat/completions"
