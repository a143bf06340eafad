"""The errors of asking, inside a ticket: each knows its kind, and whether its ticket tries again. Pure."""

from __future__ import annotations

import attrs

from embedkit.ask.kinds import LONGEST_DELAY, Kind, delay_after, kind_of
from embedkit.errors import EmbedkitError, ProviderError, ProviderTimeout, is_provider_timeout
from embedkit.providers.retry import DecidesRetry
from embedkit.settings import ProviderSettings


@attrs.frozen
class Patience:
    """How a provider's hints are followed: ``max_retry_after`` and ``over_cap`` of its settings."""

    longest: float = LONGEST_DELAY
    gives_up: bool = False

    @classmethod
    def of(cls, described: ProviderSettings) -> Patience:
        """What the settings say."""
        return cls(described.max_retry_after, described.over_cap == "give-up")


class AskFailed(DecidesRetry):
    """One attempt's failure.

    Attributes:
        kind: Which.
        is_lasting: Whether trying again cannot help, whatever the kind says.
        patience: How hints are followed.
        partial: What a stream had said before it broke; never logged.
    """

    code = "ASK_FAILED"

    def __init__(
        self,
        kind: Kind,
        message: str,
        *,
        code: str | None = None,
        status: int | None = None,
        retry_after: float | None = None,
        is_lasting: bool = False,
        partial: str | None = None,
    ) -> None:
        super().__init__(message, code=code, status=status, retry_after=retry_after)
        self.kind = kind
        self.is_lasting = is_lasting
        self.patience = Patience()
        self.partial = partial

    def next_delay(self, attempt: int) -> float | None:
        """See ``DecidesRetry``."""
        if self.is_lasting:
            return None
        patience = self.patience
        return delay_after(self.kind, attempt, self.retry_after, longest=patience.longest, gives_up=patience.gives_up)


class StreamSilent(ProviderTimeout):
    """A stream was without an event for too long.

    Attributes:
        partial: What it had said before.
    """

    def __init__(self, message: str, partial: str | None) -> None:
        super().__init__(message)
        self.partial = partial


def ask_failed(error: ProviderError, partial: str | None = None) -> AskFailed:
    """``error`` as an attempt's failure, with what had been heard before it."""
    failed = AskFailed(
        kind_of(error),
        str(error),
        code=error.code,
        status=error.status,
        retry_after=error.retry_after,
        is_lasting=error.code == "QUOTA",
        partial=partial or None,
    )
    failed.__cause__ = error
    return failed


def failed_attempt(error: Exception, provider: str, patience: Patience) -> EmbedkitError:
    """What an attempt's ``error`` is to its ticket.

    A timeout stays what it is, and is final. What is not embedkit's is named by its class: its words are foreign.
    """
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    if is_provider_timeout(error):
        assert isinstance(error, EmbedkitError)
        return error
    if isinstance(error, AskFailed):
        error.patience = patience
        return error
    if not isinstance(error, ProviderError):
        if isinstance(error, EmbedkitError):
            return error
        return AskFailed("unknown", f"provider {provider}: it failed ({type(error).__name__})")
    failed = ask_failed(error)
    failed.patience = patience
    return failed


def kind_of_failure(error: BaseException) -> Kind:
    """The kind of what came out of a lane."""
    return error.kind if isinstance(error, AskFailed) else kind_of(error)
