"""What an embedding provider is: a kind, a model, and connections that turn texts into vectors.

A provider decides nothing about admission. A slot of its lane opens one connection and owns it for as long as the
slot lives, so nothing in a provider ever queues.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from embedkit.providers.identity import Identity
    from embedkit.providers.wire import Purpose

    Vectors = NDArray[np.float32]


class Connection(Protocol):
    """One slot's own way to the engine. Used by one task at a time."""

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Embed ``texts``.

        Returns:
            ``(len(texts), dimension) float32``, row i for text i, every number finite. Rows are as the engine gives
            them; whoever stores them normalises.

        Raises:
            ProviderError: one class a cause; see ``embedkit.errors``.

        Cancellation:
            The transport is closed; nothing is known of what the engine goes on doing.
        """
        ...


class PurposefulConnection(Protocol):
    """A connection that also wants to know what texts are embedded for: to be found, or to find."""

    async def embed_for(self, texts: Sequence[str], purpose: Purpose) -> Vectors:
        """As ``Connection.embed``.

        Cancellation:
            As ``Connection.embed``.
        """
        ...


class Provider(Protocol):
    """How to speak to one engine about one model.

    One whose engine takes only so many texts in a request says so in an attribute ``max_inputs``, which others leave
    out: nobody sends it more.
    """

    @property
    def name(self) -> str:
        """The name in the settings."""
        ...

    @property
    def kind(self) -> str:
        """``local``, ``openai-compatible``, ..."""
        ...

    @property
    def model(self) -> str:
        """The model's id as the engine knows it."""
        ...

    @property
    def space_options(self) -> Mapping[str, str]:
        """What else, besides kind and model, decides which space the vectors live in."""
        ...

    @property
    def dimension(self) -> int | None:
        """Length of a vector; ``None`` until it is known."""
        ...

    def weight(self, inputs: int) -> int:
        """How many units of its lane one call with ``inputs`` texts takes."""
        ...

    async def preflight(self) -> Identity:
        """Ask, outside of every lane, whether the engine can serve the model.

        Raises:
            UsageError: It cannot: another model is there, or something that it needs is not installed.

        Cancellation:
            Nothing was changed.
        """
        ...

    def connect(self) -> AbstractAsyncContextManager[Connection]:
        """A connection for one slot, closed when the slot ends."""
        ...
