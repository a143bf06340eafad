"""The inside of a scripted engine: its slots, its own queue, and what it does when a client leaves.

A request is one unit of work (Ollama's way), or one for each of its inputs (llama.cpp's). Units take free
slots first come first served. Each unit runs as a task in the engine's nursery and not in that of its
connection: an engine that runs on after its client left holds its slot until the work is done. No sockets
    here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import attrs
import trio

from embedkit.testing.engine_answers import items_of
from embedkit.testing.engine_log import EngineLog, RequestRecord
from embedkit.testing.engine_rules import Behaviour, Rule
from embedkit.testing.engine_wire import (
    Base64,
    EngineRequest,
    Refusal,
    dialect_of,
    read_request,
    write_chat,
    write_error,
    write_listing,
    write_stream,
    write_vectors,
)

OnLeave = Literal["stop", "run-on"]
Says = Callable[[EngineRequest], str]
Service = float | Callable[[EngineRequest], float]

_REMEMBERED = 16


def repeat_question(request: EngineRequest) -> str:
    """What a scripted chat model says unless its script says otherwise: its name, and the question's last line."""
    return f"{request.model} was asked: {request.texts[-1].strip().rpartition(chr(10))[2]}"


_AT_ONCE = Behaviour()


@attrs.frozen
class EngineScript:
    """How an engine is and behaves.

    Attributes:
        slots: Units of work that run at the same time.
        service: Seconds a unit takes in its slot.
        split: Whether each input is a unit of its own.
        rules: Asked in order; the first that takes a request decides.
        on_leave: Whether the engine stops computing when a client leaves, or runs on.
        dimension: Of the vectors.
        models: What it lists. Ollama refuses others; OpenAI-compatible engines serve what they have.
        base64: What it does about ``encoding_format``.
        api_key: The key that it insists on, if any: a bearer token, or Gemini's header.
        says: What its chat models answer.
    """

    slots: int = 1
    service: Service = 0.0
    split: bool = False
    rules: Sequence[Rule] = ()
    on_leave: OnLeave = "stop"
    dimension: int = 8
    models: tuple[str, ...] = ("scripted",)
    base64: Base64 = "gives"
    api_key: str | None = attrs.field(default=None, repr=False)
    says: Says = repeat_question


@attrs.frozen
class EngineReply:
    """A reply, and how it is to be sent: in ``pieces``, where there are any."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
    behaviour: Behaviour
    pieces: tuple[bytes, ...] = ()


class EngineCore:
    """An engine without its sockets. Its work runs in ``nursery``."""

    def __init__(self, script: EngineScript, nursery: trio.Nursery) -> None:
        self.script = script
        self.log = EngineLog()
        self._nursery = nursery
        self._free = script.slots
        self._waiting: deque[tuple[Job, int]] = deque()
        self._unfinished: set[Job] = set()
        self._answers: dict[tuple[object, ...], bytes] = {}

    @property
    def queued(self) -> int:
        """Units of work that wait in the engine for a slot."""
        return len(self._waiting)

    def ask(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Job | EngineReply:
        """A request arrived: a job if it embeds, else the reply at once."""
        dialect = dialect_of(method, path)
        try:
            self._check_key(headers)
            if dialect is None:
                return self._listing(method, path)
            request = read_request(len(self.log.records) + 1, dialect, path, headers, body)
            self._check_support(request)
        except Refusal as refusal:
            return _plain(refusal.status, write_error(dialect, refusal.status, refusal.message))
        return self._submit(path, request)

    def leave(self, job: Job) -> None:
        """The client of ``job`` closed its connection."""
        job.record.client_left = True
        if self.script.on_leave == "stop":
            self._stop(job)
        self.log.changed()

    def stop_all(self) -> None:
        """Drop all work, as the end of a process does."""
        for job in list(self._unfinished):
            self._stop(job)

    def _stop(self, job: Job) -> None:
        if not job.done.is_set():
            self._waiting = deque(unit for unit in self._waiting if unit[0] is not job)
            job.scope.cancel()
            self._finish(job, "stopped")

    def _check_key(self, headers: Mapping[str, str]) -> None:
        key = self.script.api_key
        given = {headers.get("authorization", "").removeprefix("Bearer "), headers.get("x-goog-api-key")}
        if key is not None and key not in given:
            raise Refusal(401, "Incorrect API key provided")

    def _check_support(self, request: EngineRequest) -> None:
        if request.wants_base64 and self.script.base64 == "refuses":
            raise Refusal(400, "encoding_format 'base64' is not supported")
        known = {name.removesuffix(":latest") for name in self.script.models}
        if request.dialect == "ollama" and request.model.removesuffix(":latest") not in known:
            raise Refusal(404, f'model "{request.model}" not found, try pulling it first')

    def _listing(self, method: str, path: str) -> EngineReply:
        listing = write_listing(path, self.script.models) if method == "GET" else None
        if listing is None:
            raise Refusal(404, "no such path")
        self.log.listings += 1
        self.log.changed()
        return _plain(200, listing)

    def _submit(self, path: str, request: EngineRequest) -> Job:
        behaviour = next((rule.then for rule in self.script.rules if rule.takes(request)), Behaviour())
        job = Job(request, behaviour, self.log.add(path, request.texts))
        self._unfinished.add(job)
        if not behaviour.computes:
            self._nursery.start_soon(self._refuse, job)
            return job
        if self._free and not self.script.service and behaviour == _AT_ONCE:
            # No time passes, so nothing can happen meanwhile: no slot, and no task, is needed.
            job.record.started_at = trio.current_time()
            job.record.computed = len(request.texts)
            self._finish(job, "computed")
            return job
        job.units = len(request.texts) if self.script.split else 1
        self._waiting.extend((job, len(request.texts) // job.units) for _ in range(job.units))
        self._start_units()
        self.log.most_queued = max(self.log.most_queued, len(self._waiting))
        return job

    def _start_units(self) -> None:
        while self._free and self._waiting:
            job, inputs = self._waiting.popleft()
            self._free -= 1
            if job.record.started_at is None:
                job.record.started_at = trio.current_time()
                job.record.outcome = "computing"
                self.log.changed()
            self._nursery.start_soon(self._work, job, inputs)

    async def _work(self, job: Job, inputs: int) -> None:
        """One unit in its slot. A scope that was cancelled before the task ran ends it at its first await."""
        began_at = trio.current_time()
        try:
            with job.scope.child():
                if job.behaviour.until is not None:
                    await job.behaviour.until.wait()
                await trio.sleep(self._service_of(job.request) + job.behaviour.extra)
                job.record.computed += inputs
                job.units -= 1
        finally:
            self.log.busy_seconds += trio.current_time() - began_at
            self._free += 1
            self._start_units()
        if job.units == 0:
            self._finish(job, "computed")

    async def _refuse(self, job: Job) -> None:
        with job.scope.child():
            if job.behaviour.until is not None:
                await job.behaviour.until.wait()
            await trio.sleep(job.behaviour.extra)
            self._finish(job, "computed")

    def _finish(self, job: Job, outcome: Literal["computed", "stopped"]) -> None:
        if not job.done.is_set():
            self.log.end(job.record, outcome)
            job.done.set()
            self._unfinished.discard(job)

    def _service_of(self, request: EngineRequest) -> float:
        service = self.script.service
        return service(request) if callable(service) else service

    def reply_of(self, job: Job) -> EngineReply:
        """The reply to a job that is done."""
        behaviour = job.behaviour
        if job.request.streams and behaviour.says is None and behaviour.body is None:
            pieces = tuple(write_stream(job.request, self.script.says(job.request)))
            kind = "application/x-ndjson" if job.request.dialect == "ollama" else "text/event-stream"
            headers = (*behaviour.headers, ("Content-Type", kind))
            return EngineReply(behaviour.status, headers, b"".join(pieces), behaviour, pieces)
        if behaviour.says is not None:
            body = write_error(job.request.dialect, behaviour.status, behaviour.says)
        else:
            body = behaviour.body if behaviour.body is not None else self._vectors(job)
        if behaviour.rewrite is not None:
            body = behaviour.rewrite(body)
        return EngineReply(behaviour.status, behaviour.headers, body, behaviour)

    def answered(self, job: Job, *, whole: bool) -> None:
        """The reply went out, as far as it was meant to."""
        refused = job.behaviour.status != 200
        self.log.end(job.record, "broken" if not whole else "refused" if refused else "answered")

    def _vectors(self, job: Job) -> bytes:
        request = job.request
        if request.is_chat:
            return write_chat(request, self.script.says(request))
        in_base64 = request.wants_base64 and self.script.base64 == "gives"
        if job.behaviour.reshape is None:
            # Remembered, so that a benchmark which asks the same again measures its client and not this engine.
            key = (request.dialect, request.model, request.texts, "requests" in request.document, in_base64)
            if key not in self._answers:
                if len(self._answers) == _REMEMBERED:
                    self._answers.clear()
                items = items_of(request.texts, self.script.dimension)
                self._answers[key] = write_vectors(request, items, in_base64=in_base64)
            return self._answers[key]
        items = job.behaviour.reshape(items_of(request.texts, self.script.dimension))
        return write_vectors(request, items, in_base64=in_base64)


class JobScope:
    """Cancels every unit of a job, those too that have yet to start."""

    def __init__(self) -> None:
        self._cancelled = False
        self._children: list[trio.CancelScope] = []

    def child(self) -> trio.CancelScope:
        """A scope for one unit."""
        scope = trio.CancelScope()
        if self._cancelled:
            scope.cancel()
        self._children.append(scope)
        return scope

    def cancel(self) -> None:
        """Cancel them all."""
        self._cancelled = True
        for scope in self._children:
            scope.cancel()


@attrs.define(eq=False)
class Job:
    """A request that the engine works on; ``done`` is set when it has its reply, or stopped."""

    request: EngineRequest
    behaviour: Behaviour
    record: RequestRecord
    units: int = 0
    scope: JobScope = attrs.field(factory=JobScope)
    done: trio.Event = attrs.field(factory=trio.Event)


def _plain(status: int, body: bytes) -> EngineReply:
    return EngineReply(status, (), body, Behaviour())
