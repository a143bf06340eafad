"""Folders to sync, their settings, and the command line run on them, for the tests with real servers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
from llama_server import LlamaServer

from embedkit.engine import Engine, open_engine
from embedkit.settings import Settings, load_settings

_MAIN = "import sys; from embedkit.surfaces.cli import main; sys.exit(main(sys.argv[1:]))"
_ROOT = Path(__file__).parents[2]


@attrs.frozen
class Command:
    """How a command ended."""

    code: int
    printed: str
    errors: str

    @property
    def document(self) -> Any:
        """What it printed, as JSON."""
        return json.loads(self.printed)

    @property
    def repository(self) -> dict[str, Any]:
        """The only repository of the report that it printed."""
        (repository,) = self.document["repositories"]
        found: dict[str, Any] = repository
        return found


def write_settings(folder: Path, server: LlamaServer, tree: Path | None = None, **provider: object) -> Path:
    """``embedkit.toml`` for one repository, ``tree``, on ``server``; without a tree, ``folder/tree``."""
    described = {
        "kind": "openai-compatible",
        "base_url": server.openai_url,
        "model": server.alias,
        "capacity": server.slots,
        **provider,
    }
    lines = [
        "version = 1",
        "[providers.box]",
        *(f"{key} = {json.dumps(value)}" for key, value in described.items()),
        "[embedding]",
        'provider = "box"',
        "[store]",
        'path = "knowledge.sqlite3"',
        "[[tenants]]",
        'name = "acme"',
        "[[tenants.repositories]]",
        'name = "tree"',
        f"path = {json.dumps(str(tree or folder / 'tree'))}",
    ]
    path = folder / "embedkit.toml"
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


def write_files(folder: Path, texts: dict[str, str]) -> None:
    """Files below ``folder/tree``."""
    for name, text in texts.items():
        path = folder / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")


def numbered(count: int) -> dict[str, str]:
    """``count`` small files, no two alike, a chunk each."""
    return {f"{number:03}.txt": f"this is text number {number}\n" for number in range(count)}


def embedkit(folder: Path, *arguments: str) -> Command:
    """Run the command line in ``folder``, in a process of its own."""
    ended = subprocess.run(
        [sys.executable, "-c", _MAIN, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(_ROOT)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    return Command(ended.returncode, ended.stdout, ended.stderr)


@asynccontextmanager
async def opened(settings: Path, **changes: Any) -> AsyncGenerator[Engine]:
    """The engine that ``settings`` describe, in this process."""
    loaded: Settings = attrs.evolve(load_settings(settings), **changes)
    async with open_engine(loaded, reserve=0) as engine:
        yield engine
