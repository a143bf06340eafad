"""What the gateway itself answers when it does not pass an engine's answer on. Pure.

Every refusal is one sentence and a code, in the shape that the client's own library knows: OpenAI's ``error`` object,
or Ollama's ``error`` string. Whose time it was stands in ``attribution`` and in the headers.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import attrs

from embedkit.errors import (
    AdmissionError,
    DeadlineExceeded,
    EmbedkitError,
    LaneClosed,
    LaneFull,
    ProviderCircuitOpen,
    QueueWaitExceeded,
    durable_code,
    is_provider_timeout,
)

if TYPE_CHECKING:
    from embedkit.gateway.paths import Dialect

LEAST_RETRY = 1
MOST_RETRY = 60

_TYPES = {400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error"}


@attrs.frozen
class Refusal(Exception):
    """An answer of our own.

    Attributes:
        status: HTTP status.
        code: In a fixed vocabulary, in lower case.
        message: One sentence.
        retry_after: Seconds after which to come again, where that can help.
        attribution: Whose time it was: ``queue`` or ``provider``.
        cause: The code of what came before it: of the timeout that opened a circuit.
        allow: The methods that the path has, for status 405.
    """

    status: int
    code: str
    message: str
    retry_after: int | None = None
    attribution: str | None = None
    cause: str | None = None
    allow: str | None = None

    def headers(self) -> list[tuple[bytes, bytes]]:
        """What goes with it besides its body."""
        told = []
        if self.retry_after is not None:
            told.append((b"retry-after", b"%d" % self.retry_after))
        if self.status == 401:
            told.append((b"www-authenticate", b"Bearer"))
        if self.allow is not None:
            told.append((b"allow", self.allow.encode("ascii")))
        return told

    def document(self, dialect: Dialect) -> dict[str, object]:
        """Its body, in the words of ``dialect``."""
        more = {
            name: value
            for name in ("attribution", "cause", "retry_after")
            if (value := getattr(self, name)) is not None
        }
        if dialect == "ollama":
            return {"error": self.message, "code": self.code, **more}
        kind = _TYPES.get(self.status, "invalid_request_error" if self.status < 500 else "server_error")
        return {"error": {"message": self.message, "type": kind, "param": None, "code": self.code, **more}}


def bad(message: str, *, code: str = "invalid_request", status: int = 400) -> Refusal:
    """A request that makes no sense."""
    return Refusal(status, code, message)


def refusal_of(error: EmbedkitError, *, retry_after: int) -> Refusal:
    """What a client hears of ``error``.

    Args:
        error: What its ticket ended with.
        retry_after: Seconds after which there may be room.
    """
    code = error.code.lower()
    message = " ".join(str(error).split())
    match error:
        case LaneFull():
            return Refusal(429, code, message, retry_after, "queue")
        case QueueWaitExceeded():
            return Refusal(503, code, message, retry_after, "queue")
        case ProviderCircuitOpen():
            cause = error.__cause__
            named = durable_code(cause.code) if isinstance(cause, EmbedkitError) else None
            tripped = f" (tripped by: {cause})" if isinstance(cause, EmbedkitError) else ""
            return Refusal(503, code, f"{message}{tripped}", None, "queue", named)
        case LaneClosed():
            return closing()
        case DeadlineExceeded():
            return Refusal(504, code, message, attribution=error.attribution)
        case AdmissionError():
            return Refusal(503, code, message, retry_after, "queue")
    if is_provider_timeout(error):
        return Refusal(504, code, message, attribution="provider")
    return Refusal(502, code, message, attribution=error.attribution or "provider")


def closing() -> Refusal:
    """The gateway is ending."""
    return Refusal(503, "closing", "the gateway is ending; ask again once it is back", LEAST_RETRY, "queue")


def seconds_until_room(queued: int, capacity: int, mean_seconds: float | None) -> int:
    """After how long there may be room: what waits, at the pace of what was lately served; from 1 to 60 s.

    Args:
        queued: Tickets that wait.
        capacity: How many are served at once.
        mean_seconds: What one takes; ``None`` before any was served.
    """
    if mean_seconds is None:
        return LEAST_RETRY
    return min(max(math.ceil(queued * mean_seconds / max(capacity, 1)), LEAST_RETRY), MOST_RETRY)
