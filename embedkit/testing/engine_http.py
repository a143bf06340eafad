"""As much HTTP/1.1 as a scripted engine needs: requests with a length, replies with a length. Pure.

A library would read every kind of request, and take as long over one as the rest of the engine; in a benchmark it is
the clients that are measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus

import attrs

_END = b"\r\n\r\n"
_LONGEST_HEAD = 1 << 16


class NotHttpError(Exception):
    """What a client sent is no request that can be read."""


@attrs.frozen
class HttpRequest:
    """A whole request.

    Attributes:
        method: ``GET``, ``POST``.
        target: The path, with its query.
        headers: Names in lower case.
        body: Its bytes.
        is_last: Whether the client wants the connection closed after the reply.
    """

    method: str
    target: str
    headers: Mapping[str, str] = attrs.field(repr=False)
    body: bytes = attrs.field(repr=False)
    is_last: bool


class RequestReader:
    """Cuts the bytes of one connection into requests."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._head: tuple[str, str, dict[str, str], int] | None = None

    def feed(self, data: bytes) -> None:
        """More bytes arrived."""
        self._buffer += data

    def next(self) -> HttpRequest | None:
        """The next request, if all of it is there.

        Raises:
            NotHttpError: What is there is none.
        """
        if self._head is None:
            end = self._buffer.find(_END)
            if end < 0:
                if len(self._buffer) > _LONGEST_HEAD:
                    raise NotHttpError("a head that does not end")
                return None
            self._head = _read_head(bytes(self._buffer[:end]))
            del self._buffer[: end + len(_END)]
        method, target, headers, length = self._head
        if len(self._buffer) < length:
            return None
        body = bytes(self._buffer[:length])
        del self._buffer[:length]
        self._head = None
        return HttpRequest(method, target, headers, body, headers.get("connection", "").lower() == "close")


def chunk(data: bytes) -> bytes:
    """``data`` as one chunk of a body in chunks; without any, the last."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def response_head(status: int, headers: Sequence[tuple[str, str]], length: int | None) -> bytes:
    """The head of a reply with a body of ``length`` bytes, or in chunks; JSON, unless ``headers`` say otherwise."""
    phrase = HTTPStatus(status).phrase if status in _KNOWN else ""
    lines = [f"HTTP/1.1 {status} {phrase}", *(f"{name}: {value}" for name, value in headers)]
    if not any(name.lower() == "content-type" for name, _ in headers):
        lines.append("Content-Type: application/json")
    lines.append("Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


_KNOWN = frozenset(int(status) for status in HTTPStatus)


def _read_head(head: bytes) -> tuple[str, str, dict[str, str], int]:
    first, *lines = head.decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise NotHttpError("no request line")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon:
            raise NotHttpError("a header without a colon")
        headers[name.lower()] = value.strip()
    length = headers.get("content-length", "0")
    if "transfer-encoding" in headers or not length.isdigit():
        raise NotHttpError("a body without a length")
    return words[0], words[1], headers, int(length)
