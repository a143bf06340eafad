"""MCP over standard input and output: one JSON-RPC message a line.

Theory of operation. The library's own transport waits for a line in a thread that cannot be left, so that a signal
would wait for the client's next word. Here both files are read and written in threads that are left behind: what is
blocked in one keeps nothing alive. Messages go through two streams without a buffer, so that a client that does not
read holds up who writes, and nothing piles up.

The end of the input ends the server: what is being answered is cancelled. A broken output does, too.

A cancelled request is answered once its work has stopped, with the code that the library uses over HTTP, for a client
that waits for it. Revision 2026-07-28 of the protocol forbids that, so a request of that revision, which says so in its
``_meta``, gets none.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Final

import anyio
import trio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.server.lowlevel import Server
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from mcp_types import (
    PROTOCOL_VERSION_META_KEY,
    ErrorData,
    JSONRPCError,
    JSONRPCRequest,
    jsonrpc_message_adapter,
)

REQUEST_CANCELLED: Final = -32800
LONGEST_LINE: Final = 4 << 20
_READ: Final = 1 << 16
_GOODBYE_SECONDS: Final = 1.0

Incoming = MemoryObjectSendStream[SessionMessage | Exception]
Outgoing = MemoryObjectSendStream[SessionMessage]


async def serve_stdio(server: Server[dict[str, Any]], given: int = 0, told: int = 1) -> None:
    """Serve one client until its output, our input, ends.

    Args:
        server: Whose tools.
        given: The file descriptor that messages are read from.
        told: The file descriptor that messages are written to.

    Cancellation:
        Every request was cancelled. What was being written may be cut.
    """
    incoming, requests = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, messages = anyio.create_memory_object_stream[SessionMessage](0)
    written = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_read, given, incoming, outgoing.clone())
        nursery.start_soon(_write, told, messages, written, nursery.cancel_scope)
        await server.run(requests, outgoing, server.create_initialization_options())
        with trio.move_on_after(_GOODBYE_SECONDS):
            await written.wait()
        nursery.cancel_scope.cancel()


async def _read(given: int, incoming: Incoming, outgoing: Outgoing) -> None:
    lines = Lines()
    async with incoming, outgoing:
        while data := await trio.to_thread.run_sync(_some, given, abandon_on_cancel=True):
            for line in lines.of(data):
                try:
                    await incoming.send(_message(line, outgoing))
                except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                    return  # the server has ended


def _some(given: int) -> bytes:
    return os.read(given, _READ)


def _message(line: bytes | None, outgoing: Outgoing) -> SessionMessage | Exception:
    if line is None:
        return ValueError(f"a message is longer than {LONGEST_LINE:,} bytes")
    try:
        message = jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValueError as error:
        return error
    if not isinstance(message, JSONRPCRequest) or _forbids_an_answer(message):
        return SessionMessage(message)

    async def answer_cancelled() -> None:
        error = ErrorData(code=REQUEST_CANCELLED, message="Request cancelled")
        await outgoing.send(SessionMessage(JSONRPCError(jsonrpc="2.0", id=message.id, error=error)))

    return SessionMessage(message, ServerMessageMetadata(on_request_unanswered=answer_cancelled))


def _forbids_an_answer(request: JSONRPCRequest) -> bool:
    meta = (request.params or {}).get("_meta")
    return isinstance(meta, dict) and PROTOCOL_VERSION_META_KEY in meta


async def _write(
    told: int, messages: MemoryObjectReceiveStream[SessionMessage], written: trio.Event, everything: trio.CancelScope
) -> None:
    try:
        async with messages:
            async for message in messages:
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                data = text.encode("utf-8", "replace") + b"\n"
                await trio.to_thread.run_sync(_write_all, told, data, abandon_on_cancel=True)
    except OSError:
        everything.cancel()  # nobody reads any more
    finally:
        written.set()


def _write_all(told: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(told, left) :]


class Lines:
    """Bytes cut into lines as they come. A line over ``LONGEST_LINE`` is ``None``, and is held by nobody."""

    def __init__(self) -> None:
        self._begun = bytearray()
        self._is_too_long = False

    def of(self, data: bytes) -> Iterator[bytes | None]:
        """The lines that ``data`` ends, blank ones left out."""
        *ended, rest = data.split(b"\n")
        for part in ended:
            self._add(part)
            line = None if self._is_too_long else bytes(self._begun)
            self._begun.clear()
            self._is_too_long = False
            if line is None or line.strip():
                yield line
        self._add(rest)

    def _add(self, part: bytes) -> None:
        self._is_too_long = self._is_too_long or len(self._begun) + len(part) > LONGEST_LINE
        if self._is_too_long:
            self._begun.clear()
        else:
            self._begun += part
