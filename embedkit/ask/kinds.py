"""What an ask can fail with: the kinds, which of them are tried again, and the kind of each error. Pure.

Transport first, then status, then body: an error that says how the connection broke has no use for a status, unless the
status had come before it broke.

===================  ====================================================================================  =====
kind                 seen as                                                                               again
===================  ====================================================================================  =====
auth                 401, 403, a program that says its login is refused                                    no
missing-auth         the key's variable is unset, a program that nobody logged in to                       no
rate-limit           429; a quota that is used up is one too, and is not tried again                       once
timeout              the limit or the caller's deadline passed, in the queue too                           no
network              refused, reset, cut before the last byte                                              once
empty                no text, or an announcement in place of an answer                                     once
upstream             408, 5xx, the model is not loaded; a program that ended badly                         once
aborted              the engine closed, or somebody cancelled the ticket                                   no
parse                a reply that is not what the engine's language says                                   no
truncated            the limit on tokens was reached before any text                                       no
config               400, 413, 422 and other refusals of what was sent; settings that cannot be            no
model-not-allowed    the account may not use the model                                                     no
not-found            404; a program that is not on PATH                                                    no
file-too-large       a file over the engine's bound                                                        no
file-read            a file that cannot be read                                                            no
file-upload          a file that the engine did not take                                                   no
unknown              anything else: an adapter that raised what nobody expected                            no
===================  ====================================================================================  =====
"""

from __future__ import annotations

from typing import Final, Literal, get_args

from embedkit.errors import (
    AdmissionError,
    ConnectionRefused,
    ContentRefused,
    DeadlineExceeded,
    LaneFull,
    ModelNotResident,
    ProviderAuthError,
    ProviderBusy,
    ProviderError,
    QueueWaitExceeded,
    QuotaExhausted,
    ResponseInvalid,
    TransportClosed,
    UsageError,
    is_provider_timeout,
)

Kind = Literal[
    "auth",
    "missing-auth",
    "rate-limit",
    "timeout",
    "network",
    "empty",
    "upstream",
    "aborted",
    "parse",
    "truncated",
    "config",
    "model-not-allowed",
    "not-found",
    "file-too-large",
    "file-read",
    "file-upload",
    "unknown",
]

KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
RETRIED: Final[frozenset[Kind]] = frozenset({"network", "rate-limit", "empty", "upstream"})

RETRIES: Final = 1
RETRY_DELAY: Final = 2.0
LONGEST_DELAY: Final = 30.0


def kind_of(error: BaseException) -> Kind:
    """The kind of what an attempt, or the way to it, ended with."""
    if is_provider_timeout(error) or isinstance(error, QueueWaitExceeded | DeadlineExceeded):
        return "timeout"
    if isinstance(error, ProviderError):
        return _of_provider(error)
    if isinstance(error, LaneFull):
        return "rate-limit"
    if isinstance(error, AdmissionError):
        return "aborted"
    return "config" if isinstance(error, UsageError) else "unknown"


def _of_provider(error: ProviderError) -> Kind:
    if isinstance(error, TransportClosed) and error.status is not None and error.status >= 400:
        return kind_of_status(error.status)
    if isinstance(error, ConnectionRefused | TransportClosed):
        return "network"
    if isinstance(error, QuotaExhausted):
        return "rate-limit"
    if isinstance(error, ProviderBusy):
        # Words about a rate are one, whatever the status; 408, 503 and 504 are the engine's own trouble.
        return "upstream" if error.status in (408, 503, 504) else "rate-limit"
    if isinstance(error, ProviderAuthError):
        return "auth"
    if isinstance(error, ModelNotResident):
        return "not-found" if error.status == 404 else "upstream"
    if isinstance(error, ContentRefused):
        return "config"
    if isinstance(error, ResponseInvalid):
        return "parse"
    return "network" if error.status is None else kind_of_status(error.status)


def kind_of_status(status: int) -> Kind:
    """The kind of a status of which nothing but the number is known."""
    if status in (401, 403):
        return "auth"
    if status in (402, 429):
        return "rate-limit"
    if status == 404:
        return "not-found"
    if status in (408, 425, 499) or status >= 500:
        return "upstream"
    return "config" if status >= 300 else "parse"


def delay_after(
    kind: Kind,
    attempt: int,
    hint: float | None,
    *,
    longest: float = LONGEST_DELAY,
    gives_up: bool = False,
) -> float | None:
    """Seconds until the next attempt, or ``None``: the failure is final.

    Args:
        kind: What attempt number ``attempt`` (from 1) failed with.
        attempt: Attempts made so far.
        hint: Seconds that the engine asked to wait, where it did.
        longest: A longer hint is clamped to it.
        gives_up: Whether a longer hint makes the failure final instead.
    """
    if kind not in RETRIED or attempt > RETRIES:
        return None
    if hint is None:
        return RETRY_DELAY
    return None if gives_up and hint > longest else min(hint, longest)
