"""One probe: a ticket of class ``probe`` by the provider's own way, and what its outcome says of the engine."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import attrs

from embedkit.errors import AdmissionError, ProviderError, ResponseInvalid, durable_code
from embedkit.probing.rules import Finding

if TYPE_CHECKING:
    from embedkit.admission.ticket import Ticket

    Vectors = Any  # (1, dimension) float32: numpy is not imported for its name

logger = logging.getLogger("embedkit.probing")

C = TypeVar("C")
R = TypeVar("R")
Used = TypeVar("Used", covariant=True)


class Way(Protocol[Used]):
    """Who makes calls to one provider: a lane, or what stands for one where no lane governs it."""

    async def run(self, call: Callable[[Used], Awaitable[R]], ticket: Ticket) -> R:
        """See ``Lane.run``.

        Cancellation:
            See ``Lane.run``.
        """
        ...


@attrs.frozen(eq=False)
class Target(Generic[C]):
    """An engine that can be probed, and how.

    Attributes:
        provider: The provider's name; also its way's, in the ledger.
        engine: What names the engine in the shared file; see ``engine_key``.
        way: Where the probe is a ticket like any other.
        call: Asks for the vectors of one short text.
        prepare: Awaited before a call: whether one can be made at all. Gives the dimension that vectors must have, or
            ``None`` where that is not known.
        timeout: Seconds that a call of real work may take, or ``None``.
    """

    provider: str
    engine: str
    way: Way[C]
    call: Callable[[C], Awaitable[Vectors]]
    prepare: Callable[[], Awaitable[int | None]]
    timeout: float | None = None


@attrs.frozen
class Answer:
    """What a probe came to.

    Attributes:
        learned: Whether it says anything about the engine; the queue's failure is not the engine's.
        reason: The durable code of what failed, if something did.
    """

    learned: bool
    reason: str | None = None

    def finding(self) -> Finding:
        """What is known now that it has been given."""
        if not self.learned:
            return Finding("unknown", self.reason)
        return Finding("healthy" if self.reason is None else "degraded", self.reason, 0.0)


async def ask(
    target: Target[C], ticket: Ticket, dimension: int | None, on_call: Callable[[], object] = lambda: None
) -> Answer:
    """One call, and what it says.

    Args:
        target: Whom to ask.
        ticket: Of class ``probe``.
        dimension: What its vector must have, if that is known.
        on_call: Told when a call begins.

    Returns:
        Whatever the provider raises is an answer: it cannot answer now. One that raises what is no error of embedkit's
        is a provider with a defect, and no reason to end the engine that it is asked in.

    Cancellation:
        As ``Lane.run``.
    """

    async def call(connection: C) -> None:
        on_call()
        _check(await target.call(connection), dimension)

    try:
        await target.way.run(call, ticket)
    except ProviderError as error:
        return Answer(True, error.durable_code)
    except AdmissionError as error:
        # A deadline that passed during the call too: the call has its own limit, so it was the queue that ate it.
        return Answer(False, error.durable_code)
    except Exception as error:
        logger.warning("a probe of provider %s raised %s", target.provider, type(error).__name__)
        return Answer(True, durable_code(ProviderError.code))
    return Answer(True)


def _check(vectors: Vectors, dimension: int | None) -> None:
    """A vector that cannot be stored is no sign of health."""
    import numpy as np

    rows, width = np.shape(vectors)
    if rows != 1 or not width or (dimension is not None and width != dimension):
        raise ResponseInvalid(f"the probe got {rows} vectors of {width} dimensions, not 1 of {dimension or 'any'}")
    if not np.isfinite(vectors).all():
        raise ResponseInvalid("the probe got a vector with a number that is not finite")
