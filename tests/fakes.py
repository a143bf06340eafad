"""An engine in a hash function, and small worlds to sweep with it."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import trio

from embedkit.engine import Engine, open_engine
from embedkit.providers.identity import Identity
from embedkit.providers.provider import Connection
from embedkit.settings import (
    EmbeddingSettings,
    ProviderSettings,
    RepositorySettings,
    Settings,
    StoreSettings,
    SweepSettings,
    TenantSettings,
)

if TYPE_CHECKING:
    from embedkit.providers.provider import Vectors

Script = Callable[["FakeCall"], Awaitable[object]]


@attrs.frozen
class FakeCall:
    """One call to a fake provider: which, counted from 1, and with what."""

    number: int
    texts: Sequence[str]


async def answers(call: FakeCall) -> None:
    """The script of an engine that simply answers."""


class FakeProvider:
    """A provider whose vectors come from hashes: equal texts are alike, all others are not.

    Args:
        script: Awaited within each call; may wait, or raise what the engine is to fail with.
        model: A part of the space.
        dimension: Of the vectors.
    """

    kind = "fake"
    name = "fake"
    max_inputs: int | None = None

    def __init__(self, script: Script = answers, *, model: str = "hash", dimension: int = 8) -> None:
        self.script = script
        self.model = model
        self.dimension: int | None = None
        self.calls: list[FakeCall] = []
        self.answered: list[str] = []
        self._length = dimension

    @property
    def space_options(self) -> Mapping[str, str]:
        return {}

    @property
    def inputs(self) -> list[str]:
        """Every text that was sent, in order."""
        return [text for call in self.calls for text in call.texts]

    def weight(self, inputs: int) -> int:
        return 1

    async def preflight(self) -> Identity:
        return Identity("listed", self.model)

    @asynccontextmanager
    async def connect(self) -> AsyncGenerator[Connection]:
        yield self

    async def embed(self, texts: Sequence[str]) -> Vectors:
        call = FakeCall(len(self.calls) + 1, tuple(texts))
        self.calls.append(call)
        await self.script(call)
        self.answered += texts
        return vectors_of(texts, self._length)


def vectors_of(texts: Sequence[str], dimension: int = 8) -> Vectors:
    """``(n, dimension) float32``: what a fake provider gives for ``texts``."""
    import numpy as np

    digests = [hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest() for text in texts]
    rows = [np.frombuffer(digest * (dimension // 32 + 1), np.uint8)[:dimension] for digest in digests]
    return np.asarray(rows, dtype=np.float32).reshape(len(texts), dimension) - 127.5


class _AtStep(trio.abc.Instrument):
    def __init__(self, task: trio.lowlevel.Task, steps: int, act: Callable[[], object]) -> None:
        self.task = task
        self.left = steps
        self.act = act

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if task is self.task:
            self.left -= 1
            if self.left == 0:
                self.act()


@contextmanager
def cancelled_at_step(steps: int) -> Iterator[trio.CancelScope]:
    """A block that is cancelled when its task is resumed for the ``steps``-th time in it: each await in turn."""
    with trio.CancelScope() as scope:
        instrument = _AtStep(trio.lowlevel.current_task(), steps, scope.cancel)
        trio.lowlevel.add_instrument(instrument)
        try:
            yield scope
        finally:
            trio.lowlevel.remove_instrument(instrument)


async def until(condition: Callable[[], object]) -> None:
    """Wait for what has no event of its own."""
    while not condition():
        await trio.lowlevel.checkpoint()


def settings_of(store: Path, *, batch: int = 2, capacity: int = 1, **sweep: Any) -> Settings:
    """Settings whose provider ``fake`` embeds, on a lane that tries nothing again."""
    return Settings(
        providers={"fake": ProviderSettings(kind="local", capacity=capacity)},
        embedding=EmbeddingSettings(provider="fake", batch=batch),
        store=StoreSettings(path=store),
        sweep=SweepSettings(**sweep),
    )


@asynccontextmanager
async def opened(
    store: Path, provider: FakeProvider | None = None, *, batch: int = 2, capacity: int = 1, **sweep: Any
) -> AsyncGenerator[Engine]:
    """An engine on ``provider`` whose knowledge base is ``store``."""
    given = FakeProvider() if provider is None else provider
    settings = settings_of(store, batch=batch, capacity=capacity, **sweep)
    async with open_engine(settings, reserve=0, providers={"fake": given}) as engine:
        yield engine


def tenant(name: str, **folders: Path) -> TenantSettings:
    """A tenant with a repository for each folder."""
    return TenantSettings(
        name=name, repositories=tuple(RepositorySettings(name=key, path=path) for key, path in folders.items())
    )


def write_tree(root: Path, texts: Mapping[str, str]) -> Path:
    """Files below ``root``, by path."""
    for path, text in texts.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")
    root.mkdir(parents=True, exist_ok=True)
    return root


def numbered(count: int, word: str = "text") -> dict[str, str]:
    """``count`` small files, no two alike, a chunk each."""
    return {f"file{number:03}.txt": f"{word} number {number}\n" for number in range(count)}
