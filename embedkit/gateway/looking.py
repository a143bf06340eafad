"""Requests that take no slot: lists of models, health, runs, and whatever is not there.

Health is read and never asked: a check every second of a dozen load balancers would be work for the engine.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from importlib import metadata

import attrs
import orjson
import trio

from embedkit.errors import ProviderError
from embedkit.gateway.asked import json_object, model_name
from embedkit.gateway.catalogue import Served, ollama_model, openai_model
from embedkit.gateway.events import tell_events
from embedkit.gateway.inbound import ClientGoneError, Header, Inbound, Request
from embedkit.gateway.keyring import Client
from embedkit.gateway.page import page
from embedkit.gateway.paths import dialect_of, model_of
from embedkit.gateway.refusals import Refusal, refusal_of
from embedkit.gateway.relaying import Answer
from embedkit.gateway.shared import Shared
from embedkit.gateway.snapshots import snapshot_of
from embedkit.gateway.wishes import read_wishes

JSON: Header = (b"content-type", b"application/json")
_ENGINE_SECONDS = 5.0
_RUNS = "/embedkit/runs/"
_MOST_OF_A_LOOK = 1 << 22


@attrs.frozen
class _Look:
    """One request that takes no slot."""

    shared: Shared
    inbound: Inbound
    request: Request
    client: Client

    async def say(self, document: object, status: int = 200) -> None:
        await self.inbound.answer(status, [JSON, (b"cache-control", b"no-store")], orjson.dumps(document))


Show = Callable[[_Look], Awaitable[None]]


async def answer_look(shared: Shared, inbound: Inbound, request: Request) -> None:
    """Answer a request that takes no slot.

    Raises:
        Refusal: As which it is to be answered.
        ClientGoneError: There is nobody to answer any more.

    Cancellation:
        The client's answer is cut short.
    """
    path = request.path
    if path in _OPEN:
        method, show = "GET", _OPEN[path]
        client = Client()
    else:
        client = shared.keyring.client(request.headers)
        method, show = _show_of(path)
    if request.method != method and not (method == "GET" and request.method == "HEAD"):
        raise Refusal(405, "method_not_allowed", f"{path[:100]} is asked with {method}", allow=method)
    if path != "/api/show":
        await inbound.read_body()
    await show(_Look(shared, inbound, request, client))


def _show_of(path: str) -> tuple[str, Show]:
    if path in _LOOKS:
        return _LOOKS[path]
    if model_of(path) is not None:
        return "GET", _model
    if path.startswith(_RUNS) and len(path) > len(_RUNS):
        return "DELETE", _forget_run
    raise Refusal(404, "not_found", f"the gateway does not answer {path[:100]!a}")


async def _alive(look: _Look) -> None:
    await look.say({"status": "closing" if look.shared.is_closing else "ok"})


async def _ready(look: _Look) -> None:
    """Ready while new work is taken, and not every engine is known to be unwell."""
    shared = look.shared
    verdicts = {name: _verdict(shared, name) for name in shared.catalogue.served}
    is_ready = not shared.is_closing and any(word != "degraded" for word in verdicts.values())
    status = "closing" if shared.is_closing else "ok" if is_ready else "degraded"
    await look.say({"status": status, "engines": verdicts}, 200 if is_ready else 503)


def _verdict(shared: Shared, name: str) -> str:
    shared.engine.lane(name)  # watched from its opening on
    return shared.engine.probes.verdict(name).verdict


async def _models(look: _Look) -> None:
    created = int(look.shared.started_at)
    listed = [openai_model(name, served, created) for name, served in look.shared.catalogue.listed()]
    await look.say({"object": "list", "data": listed})


async def _model(look: _Look) -> None:
    name = model_of(look.request.path)
    assert name is not None
    served = look.shared.catalogue.find(name, "openai")
    await look.say(openai_model(name, served, int(look.shared.started_at)))


async def _tags(look: _Look) -> None:
    since = datetime.fromtimestamp(look.shared.started_at, UTC).isoformat()
    models = [ollama_model(name, since) for name, _ in look.shared.catalogue.listed()]
    await look.say({"models": models})


async def _version(look: _Look) -> None:
    served = _first_ollama(look.shared)
    if served is None:
        await look.say({"version": metadata.version("trio-embedkit")})
    else:
        await _pass_on(look, served, "GET", "/api/version", None)


async def _running(look: _Look) -> None:
    served = _first_ollama(look.shared)
    if served is None:
        await look.say({"models": []})
    else:
        await _pass_on(look, served, "GET", "/api/ps", None)


async def _show(look: _Look) -> None:
    body = await look.inbound.read_body()
    document = json_object(body)
    name = model_name(document)
    served = look.shared.catalogue.find(name, "ollama")
    if served.kind != "ollama":
        raise Refusal(400, "other_dialect", f"the model {name!a} speaks OpenAI's dialect; see GET /v1/models")
    own = served.own_name(name)
    if own is not None:
        body = orjson.dumps({**document, "model": own})
    await _pass_on(look, served, "POST", "/api/show", body)


def _first_ollama(shared: Shared) -> Served | None:
    return next((one for one in shared.catalogue.served.values() if one.kind == "ollama"), None)


async def _pass_on(look: _Look, served: Served, method: str, path: str, body: bytes | None) -> None:
    """Ask the engine what costs it nothing: no slot is taken."""
    upstream = look.shared.upstream(served.provider)
    relay = upstream.take()
    answer: Answer | None = None
    failure: ProviderError | None = None
    try:
        with trio.move_on_after(_ENGINE_SECONDS):
            head = await relay.ask(method, path, body)
            parts = []
            size = 0
            while size <= _MOST_OF_A_LOOK and (piece := await relay.receive()):
                parts.append(piece)
                size += len(piece)
            answer = Answer(head.status, head.headers, b"".join(parts))
    except ProviderError as error:
        failure = error
    finally:
        if answer is None:
            await relay.aclose()
        upstream.give_back(relay)
    if failure is not None:
        raise refusal_of(failure, retry_after=1)
    if answer is None:
        message = f"engine {upstream.endpoint.peer} did not answer within {_ENGINE_SECONDS:g} s"
        raise Refusal(504, "provider_timeout", message, attribution="provider")
    await look.inbound.answer(answer.status, answer.headers, answer.body)


async def administer(shared: Shared, inbound: Inbound, request: Request) -> None:
    """Pass on to the first Ollama engine what changes the models it has. It takes no slot: no model computes for it.

    Raises:
        Refusal: There is no Ollama engine, or it cannot be reached.
        ClientGoneError: The client has left.

    Cancellation:
        The client's answer is cut short.
    """
    if request.method not in ("POST", "DELETE"):
        raise Refusal(405, "method_not_allowed", f"{request.path} is asked with POST or DELETE", allow="POST, DELETE")
    body = await inbound.read_body()
    served = _first_ollama(shared)
    if served is None:
        raise Refusal(404, "other_dialect", "no engine that is served here speaks Ollama's dialect")
    upstream = shared.upstream(served.provider)
    relay = upstream.take()
    is_whole = False
    try:
        head = await relay.ask(request.method, request.path, body)
        length = [] if head.length is None else [(b"content-length", b"%d" % head.length)]
        first = b"" if head.length == 0 else await relay.receive()
        await inbound.begin(head.status, [*head.headers, *length], first)
        while first and (piece := await relay.receive()):
            await inbound.send(piece)
        await inbound.finish()
        is_whole = bool(first)
    except ProviderError as error:
        if not inbound.can_answer:
            raise ClientGoneError from error  # its answer can only break off
        raise refusal_of(error, retry_after=1) from error
    finally:
        if not is_whole:
            await relay.aclose()
        upstream.give_back(relay)


async def _forget_run(look: _Look) -> None:
    name = look.request.path[len(_RUNS) :]
    tenant = read_wishes(look.request.headers, look.client).tenant
    if not look.shared.runs.forget(tenant, name):
        raise Refusal(404, "run_not_found", f"no run {name[:100]!a} of this tenant is known")
    await look.say({"run": name, "forgotten": True})


async def _status(look: _Look) -> None:
    await look.say(snapshot_of(look.shared))


async def _events(look: _Look) -> None:
    await tell_events(look.shared, look.inbound)


async def _metrics(look: _Look) -> None:
    kind, body = look.shared.metrics.text()
    await look.inbound.answer(200, [(b"content-type", kind)], body)


async def _page(look: _Look) -> None:
    headers, body = page()
    await look.inbound.answer(200, headers, body)


# What needs no key: it says nothing of anybody.
_OPEN: Mapping[str, Show] = {"/healthz": _alive, "/readyz": _ready, "/": _page}
_LOOKS: Mapping[str, tuple[str, Show]] = {
    "/v1/models": ("GET", _models),
    "/api/tags": ("GET", _tags),
    "/api/version": ("GET", _version),
    "/api/ps": ("GET", _running),
    "/api/show": ("POST", _show),
    "/embedkit/status": ("GET", _status),
    "/embedkit/events": ("GET", _events),
    "/metrics": ("GET", _metrics),
}


def refusal_body(refusal: Refusal, path: str) -> bytes:
    """What a refusal says, in the words of whoever asked for ``path``."""
    return orjson.dumps(refusal.document(dialect_of(path)))
