"""What is done about a batch that the engine refuses: find the input at fault by evidence, and keep the rest. Pure.

An engine that refuses one input says so in words that nobody can list: 400, 422, 424, 500 or 501 with any sentence, a
reply in which one vector is null or NaN, a connection that is cut at that text. An engine that is broken may say the
same. So the words are not asked. A control, a text that every healthy engine embeds, is bought before the search and
again after it: only then are the inputs that were refused alone, twice, said to be at fault. If a control fails, nobody
is: the failure is the engine's.

The search is a generator without IO: it yields what to do next, and is told what came of it. Known words only make it
quicker: the input that the engine names is tried first, and one that is too long is split. An input that is large, and
refused in words that say nothing, is split before it is said to be at fault: it may be too long in new words.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

import attrs

from embedkit.errors import (
    ContentRefused,
    EmbedkitError,
    ModelNotResident,
    ProviderAuthError,
    ProviderBusy,
    ProviderError,
    ProviderFailure,
    ResponseInvalid,
    TransportClosed,
    is_provider_timeout,
)
from embedkit.knowledge.chunking.tokens import estimate_tokens

Batch = Sequence[tuple[bytes, str]]
"""Inputs of one ticket: hash and text of each."""

CONTROL = "control"
"""Short, plain, and in no window's way."""

MOST_IN_A_ROW = 8
"""Inputs refused one after the other in unknown words, with none accepted between: then it is the engine after all."""

_TOO_LONG = "INPUT_TRUNCATED"
_REFUSALS = frozenset({400, 413, 422, 424, 500, 501})
_EVIDENT = (ContentRefused, ResponseInvalid, TransportClosed, ProviderFailure)
_ENGINES_OWN = (ProviderAuthError, ModelNotResident, ProviderBusy)


@attrs.frozen
class Control:
    """Buy the control. If it fails, that failure is raised, and the search is over."""


@attrs.frozen
class Offer:
    """Buy a batch, and keep what it brings. The answer is its refusal, or ``None``."""

    batch: Batch


@attrs.frozen
class Split:
    """Put the halves of an input in its place. The answer is what to buy of them, or ``None``: it has no halves."""

    hash: bytes


Step = Control | Offer | Split
Answer = ProviderError | Sequence[Batch] | None


@attrs.frozen
class Found:
    """What a search found.

    Attributes:
        at_fault: Inputs that are refused alone, each with its refusal.
        was_too_large: Whether all was accepted in parts: the batch was too large for the engine, not its inputs.
    """

    at_fault: dict[bytes, ProviderError]
    was_too_large: bool


def may_be_an_inputs(error: EmbedkitError) -> bool:
    """Whether a final failure may belong to one of the inputs: only evidence can tell."""
    if not isinstance(error, ProviderError) or is_provider_timeout(error):
        return False
    if isinstance(error, ContentRefused):
        return True
    if error.status is not None and 300 <= error.status < 400:
        return False
    return isinstance(error, _EVIDENT) or (error.status in _REFUSALS and not isinstance(error, _ENGINES_OWN))


def bisect(batch: Batch, refused: ProviderError, *, window: int) -> Generator[Step, Answer, Found]:
    """Search in one batch.

    Args:
        batch: What was refused together.
        refused: How.
        window: About how many tokens the engine takes of one input.

    Returns:
        What was found; nobody is at fault unless the last control was bought.

    Raises:
        ProviderError: One input after the other is refused: the refusal of the last.
    """
    return (yield from _Search(window // 2).run(batch, refused))


@attrs.define
class _Search:
    large: int
    at_fault: dict[bytes, ProviderError] = attrs.field(factory=dict)
    in_a_row: int = 0
    has_split: bool = False

    def run(self, batch: Batch, refused: ProviderError) -> Generator[Step, Answer, Found]:
        yield Control()
        parts = yield from self._parts(batch, refused)
        # One input without parts is asked about again, now that the engine is known to be well.
        for part in [batch] if parts is None else parts:
            yield from self._look_in(part)
        if self.at_fault:
            yield Control()
        accepted = not self.at_fault and not self.has_split and not isinstance(refused, TransportClosed)
        return Found(self.at_fault, accepted and len(batch) > 1)

    def _look_in(self, batch: Batch) -> Generator[Step, Answer, None]:
        refused = yield Offer(batch)
        if refused is None:
            self.in_a_row = 0
            return
        assert isinstance(refused, ProviderError)
        parts = yield from self._parts(batch, refused)
        if parts is None:
            self._blame(batch[0][0], refused)
            return
        for part in parts:
            yield from self._look_in(part)

    def _blame(self, hash_: bytes, refused: ProviderError) -> None:
        self.at_fault[hash_] = refused
        self.in_a_row += not isinstance(refused, ContentRefused)
        if self.in_a_row >= MOST_IN_A_ROW:
            raise refused

    def _parts(self, batch: Batch, refused: ProviderError) -> Generator[Step, Answer, Sequence[Batch] | None]:
        """What to offer in place of ``batch``; ``None`` if it is one input that has no parts."""
        if len(batch) > 1:
            return _divided(batch, refused.input_index)
        ((hash_, text),) = batch
        if not self._may_be_too_long(text, refused):
            return None
        halves = yield Split(hash_)
        assert not isinstance(halves, ProviderError)
        self.has_split = self.has_split or halves is not None
        return halves

    def _may_be_too_long(self, text: str, refused: ProviderError) -> bool:
        if isinstance(refused, ContentRefused):
            return refused.code == _TOO_LONG
        return estimate_tokens(text) > self.large


def _divided(batch: Batch, index: int | None) -> list[Batch]:
    """Smaller batches: the input that the engine named and the rest, else two halves."""
    if index is not None and index < len(batch):
        return [batch[index : index + 1], [*batch[:index], *batch[index + 1 :]]]
    middle = len(batch) // 2
    return [batch[:middle], batch[middle:]]
