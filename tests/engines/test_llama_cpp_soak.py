"""A good part of Python's standard library through a real llama.cpp server, which is killed again and again."""

from __future__ import annotations

import shutil
import sqlite3
import sysconfig
from functools import partial
from pathlib import Path

import pytest
import trio
from llama_server import LlamaServer
from trees import Command, embedkit, write_settings

pytestmark = pytest.mark.soak

KILLED_AT = (200, 1_000, 2_500)
# Some 250 files, 4,000 chunks: each character is a token to the tiny model, so the whole library would take an hour.
PACKAGES = (
    "asyncio",
    "concurrent",
    "ctypes",
    "email",
    "http",
    "importlib",
    "json",
    "logging",
    "multiprocessing",
    "xml",
)


def vectors_in(store: Path) -> int:
    if not store.exists():
        return 0
    connection = sqlite3.connect(f"file:{store}?mode=ro", uri=True)
    try:
        (count,) = connection.execute("SELECT count(*) FROM vectors").fetchone()
    except sqlite3.OperationalError:  # its tables are yet to be made
        return 0
    finally:
        connection.close()
    return int(count)


async def sync_killing(server: LlamaServer, folder: Path, count: int) -> Command:
    """A sync, under which the server is killed when the store holds ``count`` vectors."""
    ended: list[Command] = []

    async def run() -> None:
        ended.append(await trio.to_thread.run_sync(partial(embedkit, folder, "sync", "--all", "--json")))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        while vectors_in(folder / "knowledge.sqlite3") < count:  # noqa: ASYNC110  # it happens in another process
            await trio.sleep(0.05)
        server.kill()
    return ended[0]


async def test_a_large_tree_survives_a_server_that_is_killed_three_times(tmp_path: Path, llama: LlamaServer) -> None:
    tree = tmp_path / "tree"
    for package in PACKAGES:
        source = Path(sysconfig.get_path("stdlib"), package)
        shutil.copytree(source, tree / package, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    write_settings(tmp_path, llama)
    bought = 0
    for count in KILLED_AT:
        broken = await sync_killing(llama, tmp_path, count)
        assert (broken.code, broken.repository["outcome"]) == (3, "deferred")
        assert broken.repository["code"] in ("KB_VECTOR_EMBED_CONNECTION_REFUSED", "KB_VECTOR_EMBED_TRANSPORT_CLOSED")
        assert broken.repository["outstanding"] > 0
        bought += broken.repository["embedded"]
        assert bought == vectors_in(tmp_path / "knowledge.sqlite3")
        llama.start()

    whole = embedkit(tmp_path, "sync", "--all", "--json")
    assert (whole.code, whole.repository["outcome"], whole.repository["outstanding"]) == (0, "complete", 0)
    assert bought + whole.repository["embedded"] == vectors_in(tmp_path / "knowledge.sqlite3")  # nothing bought twice
    assert whole.repository["documents"] > 150
    found = embedkit(tmp_path, "search", "class JSONDecoder", "--json")
    assert found.document["hits"][0]["path"] == "json/decoder.py"
