"""Files sent along to grok: read, uploaded one after the other, asked about, and removed again.

What was uploaded is removed however the question ends, cancelled or not: within ``REMOVAL_SECONDS``, shielded. If that
is not enough, xAI drops it after an hour, as it was asked to.
"""

from __future__ import annotations

import math
import secrets
import stat
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import trio

from embedkit.ask.failing import AskFailed
from embedkit.ask.xai_files import LARGEST_FILE, read_upload, write_upload
from embedkit.errors import ProviderError, ProviderTimeout
from embedkit.providers.failures import Asked
from embedkit.providers.http import HttpExchange
from embedkit.settings import Limit

REMOVAL_SECONDS: Final = 2.0


@asynccontextmanager
async def uploaded(
    exchange: HttpExchange, paths: Sequence[Path], limit: Limit | None, asked: Asked
) -> AsyncGenerator[list[str]]:
    """The ids of the files, which are there for as long as the block lasts.

    Args:
        exchange: To the engine.
        paths: What is uploaded.
        limit: What each may take; ``None`` for no bound.
        asked: For messages.

    Raises:
        AskFailed: ``file-read``, ``file-too-large``, ``file-upload``.
        ProviderTimeout: One took longer than ``limit``.
        ProviderError: See ``read_upload``.

    Cancellation:
        What had been uploaded was removed, or is dropped by the engine after an hour.
    """
    ids: list[str] = []
    try:
        contents = [(path.name, await trio.to_thread.run_sync(_read, path, abandon_on_cancel=True)) for path in paths]
        for name, content in contents:
            ids.append(await _upload(exchange, name, content, limit, asked))
        yield ids
    finally:
        if ids:
            with trio.move_on_after(REMOVAL_SECONDS, shield=True):
                await _remove(exchange, ids)


async def _upload(exchange: HttpExchange, name: str, content: bytes, limit: Limit | None, asked: Asked) -> str:
    upload = write_upload(name, content, f"embedkit-{secrets.token_hex(16)}")
    with trio.move_on_after(math.inf if limit is None else limit.seconds):
        reply = await exchange.send("POST", "/files", upload.body, content_type=upload.content_type, max_bytes=1 << 20)
        return read_upload(reply, name, asked)
    assert limit is not None
    told = f"{name} was not uploaded within {limit.seconds:g} s ({limit.rung})"
    raise ProviderTimeout(f"engine {asked.peer}: {told}")


async def _remove(exchange: HttpExchange, ids: Sequence[str]) -> None:
    for one in ids:
        try:
            await exchange.send("DELETE", f"/files/{one}", max_bytes=1 << 20)
        except ProviderError:
            continue  # it expires by itself


def _read(path: Path) -> bytes:
    """All of a file, before anything is sent.

    Raises:
        AskFailed: ``file-read``, ``file-too-large``.
    """
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise AskFailed("file-read", f"{path} is no file; name one", code="FILE_READ")
        if status.st_size > LARGEST_FILE:
            raise _too_large(path)
        with path.open("rb") as file:
            content = file.read(LARGEST_FILE + 1)
    except OSError as error:
        raise AskFailed("file-read", f"{path} cannot be read ({error.strerror})", code="FILE_READ") from error
    if len(content) > LARGEST_FILE:
        raise _too_large(path)
    return content


def _too_large(path: Path) -> AskFailed:
    message = f"{path} is larger than {LARGEST_FILE // 1_000_000} MB, the most that is taken; send a part of it"
    return AskFailed("file-too-large", message, code="FILE_TOO_LARGE")
