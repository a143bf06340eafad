"""The gateway's life: it listens, serves each client in a task of its own, and ends in order.

Ending: the listeners close; what is queued is shed, and its clients are told to come again; calls that are out get
``drain_timeout``; then whatever is left is cut off. A connection that is idle between two requests is closed at once.
"""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from functools import partial

import trio

from embedkit.engine import Engine
from embedkit.gateway.door import answer_request
from embedkit.gateway.inbound import ClientGoneError, Inbound
from embedkit.gateway.listening import check_places, open_listeners, remove_socket, tls_of, written
from embedkit.gateway.looking import JSON, refusal_body
from embedkit.gateway.refusals import Refusal
from embedkit.gateway.shared import Shared

logger = logging.getLogger("embedkit.gateway")

_HANDSHAKE_SECONDS = 10.0


class Gateway:
    """A gateway that listens. See ``open_gateway``.

    Attributes:
        shared: What its requests share.
        addresses: Where it listens, as a client would write it.
    """

    def __init__(self, shared: Shared, addresses: Sequence[str]) -> None:
        self.shared = shared
        self.addresses = addresses
        self._busy = 0
        self._idle = trio.Event()
        self._open: set[Inbound] = set()

    @property
    def port(self) -> int:
        """Of the first address that has one."""
        return int(next(address.rpartition(":")[2] for address in self.addresses if not address.startswith("unix:")))

    @property
    def url(self) -> str:
        """What a client on this machine is given; OpenAI's add ``/v1``."""
        scheme = "http" if self.shared.settings.gateway.certificate is None else "https"
        return f"{scheme}://{next(one for one in self.addresses if not one.startswith('unix:'))}"

    def close(self) -> None:
        """Let nothing more in, and shed what is queued. Calls that are out go on."""
        self.shared.closing.set()
        for lane in self.shared.engine.lanes:
            lane.close()
        for inbound in list(self._open):
            inbound.end_rest()
        self._note_idle()

    async def drained(self) -> None:
        """Wait until the gateway is closed and every request that was here has its answer.

        Cancellation:
            Changes nothing; it may be awaited again.
        """
        await self._idle.wait()

    async def serve(self, stream: trio.abc.Stream, *, is_local: bool) -> None:
        """Serve one client, request after request, until it leaves or has to.

        Cancellation:
            Its connection is closed.
        """
        inbound = Inbound(stream, self.shared.settings.gateway, is_local=is_local)
        self._open.add(inbound)
        try:
            while await self._serve_one(inbound) and not self.shared.is_closing:
                pass
        except ClientGoneError:
            pass
        except Exception as error:
            # A defect of ours costs this client its connection, and nobody else anything.
            logger.error("a request failed with %s", type(error).__name__, exc_info=error)
        finally:
            self._open.discard(inbound)
            await inbound.aclose()

    async def _serve_one(self, inbound: Inbound) -> bool:
        """Answer one request; whether the connection is good for another."""
        path = "/v1/"
        try:
            request = await inbound.next_request()
            if request is None:
                return False
            path = request.path
            with self._counted():
                await answer_request(self.shared, inbound, request)
        except Refusal as refusal:
            if not inbound.can_answer:
                return False
            await inbound.answer(refusal.status, [JSON, *refusal.headers()], refusal_body(refusal, path))
        if inbound.begin_next():
            return True
        await inbound.linger()
        return False

    def _counted(self) -> _Counted:
        return _Counted(self)

    def _note_idle(self) -> None:
        if self.shared.is_closing and self._busy == 0:
            self._idle.set()


class _Counted:
    """A request is here."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def __enter__(self) -> None:
        self._gateway._busy += 1

    def __exit__(self, *_: object) -> None:
        self._gateway._busy -= 1
        self._gateway._note_idle()


@asynccontextmanager
async def open_gateway(engine: Engine) -> AsyncGenerator[Gateway]:
    """A gateway before the engine's lanes, which listens where its settings say for as long as the block.

    Leaving the block closes it: what is queued is shed, and calls that are out get ``gateway.drain_timeout``.

    Raises:
        UsageError: There is nothing to serve, it would be open to a network without keys, or it cannot listen.

    Cancellation:
        Every connection is closed at once.
    """
    settings = engine.settings.gateway
    shared = Shared(engine)
    check_places(settings.listen, has_keys=bool(shared.keyring))
    tls = tls_of(settings)
    listeners = await open_listeners(settings.listen)
    gateway = Gateway(shared, [written(listener) for listener in listeners])
    failed: Exception | None = None
    try:
        async with trio.open_nursery() as clients:
            listening = [trio.CancelScope() for _ in listeners]
            for listener, scope in zip(listeners, listening, strict=True):
                clients.start_soon(partial(_listen, gateway, listener, clients, scope, tls=tls))
            try:
                yield gateway
            except Exception as error:
                failed = error  # kept aside, so that the nursery does not wrap it in a group
            for scope in listening:
                scope.cancel()
            gateway.close()
            if failed is None:
                with trio.move_on_after(settings.drain_timeout):
                    await gateway.drained()
            clients.cancel_scope.cancel()
    finally:
        for place in settings.listen:
            if place.path is not None:
                remove_socket(place.path)
        await shared.aclose()
    if failed is not None:
        raise failed


async def _listen(
    gateway: Gateway,
    listener: trio.SocketListener,
    clients: trio.Nursery,
    scope: trio.CancelScope,
    *,
    tls: ssl.SSLContext | None,
) -> None:
    is_local = listener.socket.family == socket.AF_UNIX

    async def handle(stream: trio.SocketStream) -> None:
        if tls is not None:
            secured = trio.SSLStream(stream, tls, server_side=True, https_compatible=True)
            try:
                with trio.fail_after(_HANDSHAKE_SECONDS):
                    await secured.do_handshake()
            except (trio.BrokenResourceError, trio.TooSlowError):
                await trio.aclose_forcefully(stream)
                return
            await gateway.serve(secured, is_local=is_local)
        else:
            await gateway.serve(stream, is_local=is_local)

    with scope:
        await trio.serve_listeners(handle, [listener], handler_nursery=clients)
