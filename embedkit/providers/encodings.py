"""Bodies that a proxy has packed although nobody asked for it: unpacked within a bound, off the event loop."""

from __future__ import annotations

import zlib

import trio

_PLAIN = frozenset({"", "identity", "none", "utf-8", "utf8"})
_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS  # zlib finds out by the first bytes
_RAW = -zlib.MAX_WBITS
_AT_ONCE = 1 << 14  # bytes whose unpacking takes no time worth a thread
_KNOWN = frozenset({"gzip", "x-gzip", "deflate"})
_NAMED = frozenset({"br", "zstd", "compress", "dcb", "dcz"})


class EncodingRefused(Exception):
    """A body that cannot be unpacked; the words go on from ``the reply``."""


async def decoded(body: bytes, encoding: str, limit: int) -> bytes:
    """``body`` as it was before ``encoding``, a header of any case that may be empty or nonsense.

    Args:
        body: As it arrived.
        encoding: The value of ``Content-Encoding``.
        limit: The largest result in bytes.

    Raises:
        EncodingRefused: The encoding is not known, the body is not in it, or the result is larger than ``limit``.

    Cancellation:
        Nothing came of it; a thread that unpacks goes on to its bound.
    """
    named = [name for part in encoding.lower().split(",") if (name := part.strip()) not in _PLAIN]
    if not named:
        return body
    if len(named) > 1 or named[0] not in _KNOWN:
        # What came from the other side is quoted only where it is one of these: it may hold anything.
        what = repr(named[0]) if named[0] in _NAMED and len(named) == 1 else "something unknown"
        raise EncodingRefused(f"is encoded as {what}, which was not asked for")
    if len(body) <= _AT_ONCE:
        return _unpacked(body, limit)
    return await trio.to_thread.run_sync(_unpacked, body, limit, abandon_on_cancel=True)


def _unpacked(body: bytes, limit: int) -> bytes:
    for form in (_GZIP_OR_ZLIB, _RAW):  # "deflate" means either, and both are seen
        unpacker = zlib.decompressobj(form)
        try:
            plain = unpacker.decompress(body, limit + 1)
        except zlib.error:
            continue
        if len(plain) > limit:
            raise EncodingRefused(f"is larger than {limit} bytes once it is unpacked")
        if not unpacker.eof:
            raise EncodingRefused("is packed, and cut short")
        return plain
    raise EncodingRefused("says that it is packed, and is not")
