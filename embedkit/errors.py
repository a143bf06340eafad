"""Every error embedkit raises, in one tree, and the only place where a timeout code is spelled.

::

    EmbedkitError
    ├── UsageError                  the caller's: arguments, paths, settings, keys (exit 2)
    │   ├── SettingsError           a settings file: names file, line, key, value and the mend
    │   └── SpaceMismatch           a store that holds vectors of another embedding space
    ├── AdmissionError              the lane's: the provider was not at fault, and may not have been called
    │   ├── LaneFull                no room to wait; nothing was offered
    │   ├── LaneClosed              the engine or lane ended
    │   ├── TicketWithdrawn         the ticket's own scope was cancelled
    │   ├── ProviderCircuitOpen     the run's circuit is open; ``__cause__`` tripped it
    │   ├── QueueWaitExceeded       the caller's deadline passed in the queue; nothing was sent
    │   └── DeadlineExceeded        the caller's deadline passed while the call was out
    ├── ProviderError               the engine's, or the way to it
    │   ├── ProviderTimeout         one attempt took longer than its limit
    │   ├── ProviderBusy            408, 429, 503, 504: try later
    │   ├── ModelNotResident        the engine does not have the model loaded
    │   ├── ConnectionRefused       nobody listens there
    │   ├── TransportClosed         the connection broke before the last byte
    │   ├── ContentRefused          one input is at fault, not the engine
    │   ├── ResponseInvalid         a reply that fails validation
    │   ├── ModelChanged            the replies of one run name different models
    │   ├── ProviderAuthError       the key is missing, wrong or not enough
    │   ├── QuotaExhausted          a quota or a balance is used up, and waiting does not bring it back
    │   └── ProviderFailure         any other refusal of the engine
    │       └── ProviderUnavailable 425, 499, 500, 502, 520 to 529: it failed for now, or what stands before it did
    ├── StoreError                  the knowledge base on disk
    │   ├── StoreUnreadable         not a database, corrupt, of a newer version, or not to be opened
    │   ├── StoreFull               the disk is full
    │   ├── StoreReadOnly           the file or folder is not to be written
    │   ├── StoreLocked             another process held it longer than we wait
    │   └── StoreMoved              the file was removed, renamed or replaced while it was in use
    └── SourceError                 a repository that cannot be read

Each class says in ``retryable`` whether trying again can help, and in ``deferrable`` whether a sweep puts the work
off (true) or counts it as the repository's own failure (false). A provider's error says in ``isolable`` whether one
input of the batch may be at fault. Cancelled is not here: it is never wrapped, renamed, stored or counted as an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from embedkit.clocks import Attribution, Clocks

_DURABLE = "KB_VECTOR_EMBED_"

_TIMEOUT_CODES = frozenset({"PROVIDER_TIMEOUT", "OPENAI_COMPATIBLE_REQUEST_TIMEOUT", "ETIMEDOUT", "ESOCKETTIMEDOUT"})


class EmbedkitError(Exception):
    """Base of every error that embedkit raises.

    Attributes:
        code: What happened, in a fixed vocabulary. Compared whole; never parsed.
        clocks: The three times of the ticket that failed, where there was one.
        attribution: ``queue`` where waiting took longer than the provider and its retries, else ``provider``;
            ``None`` where there was no ticket.
        attempts: Provider calls that were made for it.
    """

    code: str = "EMBEDKIT_ERROR"
    retryable: ClassVar[bool] = False
    deferrable: ClassVar[bool] = False

    def __init__(self, message: str, *, code: str | None = None) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code
        self.clocks: Clocks | None = None
        self.attribution: Attribution | None = None
        self.attempts = 0

    @property
    def durable_code(self) -> str:
        """The code that is stored and reported: ``KB_...``."""
        return durable_code(self.code)


class UsageError(EmbedkitError):
    """The caller asked for something that cannot be: at fault is the caller; trying again does not help."""

    code = "USAGE"
    kind: ClassVar[str] = "usage"


class SettingsError(UsageError):
    """A settings file that cannot be used.

    Attributes:
        file: Path of the file, or ``None`` for settings made in code.
        line: 1-based line of the key, where it has one.
        key: Full path of the key, for example ``tenants[2].repositories[0].path``.
    """

    code = "SETTINGS"
    kind = "settings"

    def __init__(
        self, message: str, *, file: str | None = None, line: int | None = None, key: str | None = None
    ) -> None:
        where = ":".join(str(part) for part in (file, line) if part is not None)
        what = f"{key}: {message}" if key else message
        super().__init__(f"{where}: {what}" if where else what)
        self.message = message
        self.file = file
        self.line = line
        self.key = key


class SpaceMismatch(UsageError):
    """The store holds vectors of another embedding space (provider kind, model, dimension or options)."""

    code = "KB_STORE_SPACE_MISMATCH"
    kind = "space"


class AdmissionError(EmbedkitError):
    """The lane's word, not the provider's."""

    code = "ADMISSION"
    deferrable = True


class LaneFull(AdmissionError):
    """The waiting room of the ticket's class is full; the ticket was not offered. Trying again later can help."""

    code = "LANE_FULL"
    retryable = True


class LaneClosed(AdmissionError):
    """The lane ended before the ticket could be settled. At fault is nobody."""

    code = "LANE_CLOSED"


class TicketWithdrawn(AdmissionError):
    """Somebody cancelled the ticket's own scope. At fault is nobody."""

    code = "ABORTED"


class ProviderCircuitOpen(AdmissionError):
    """The run's circuit is open: the ticket was shed without a provider call. ``__cause__`` is what tripped it."""

    code = "PROVIDER_CIRCUIT_OPEN"


class QueueWaitExceeded(AdmissionError):
    """The caller's deadline passed while the ticket was queued; zero provider calls were made for it."""

    code = "QUEUE_WAIT_EXCEEDED"
    retryable = True


class DeadlineExceeded(AdmissionError):
    """The caller's deadline passed while the call was out: the caller's patience, not the provider's time."""

    code = "DEADLINE_EXCEEDED"
    retryable = True


class ProviderError(EmbedkitError):
    """The engine failed, or the way to it.

    Attributes:
        isolable: Whether one input may be at fault, whatever the engine says: it saw the batch and gave no vectors.
            Evidence decides: it is so if the batch fails again while a control succeeds. False for an engine that is
            busy, down or without its model, and for keys and quotas, which no other batch would change.
        status: HTTP status, where there was one.
        retry_after: Seconds that the engine asked us to wait, where it did.
        input_index: Position in the batch of the input at fault, where one is known.
        max_inputs: How many inputs of one request the engine says that it takes, where it refused more.
    """

    code = "PROVIDER_FAILED"
    isolable: ClassVar[bool] = False

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        status: int | None = None,
        retry_after: float | None = None,
        input_index: int | None = None,
        max_inputs: int | None = None,
    ) -> None:
        super().__init__(message, code=code)
        self.status = status
        self.retry_after = retry_after
        self.input_index = input_index
        self.max_inputs = max_inputs


class ProviderTimeout(ProviderError):
    """One attempt did not end within its limit, from dispatch to last byte. Trying again later can help."""

    code = "PROVIDER_TIMEOUT"
    retryable = True
    deferrable = True


class ProviderBusy(ProviderError):
    """The engine asked us to come back later (408, 429, 503, 504). Trying again later helps."""

    code = "PROVIDER_BUSY"
    retryable = True
    deferrable = True


class ModelNotResident(ProviderError):
    """The engine has not loaded the model, or unloaded it meanwhile. Trying again can help."""

    code = "MODEL_NOT_RESIDENT"
    retryable = True
    deferrable = True


class ConnectionRefused(ProviderError):
    """Nobody listens at the engine's address. Trying again helps once it is started."""

    code = "CONNECTION_REFUSED"
    retryable = True
    deferrable = True


class TransportClosed(ProviderError):
    """The connection broke before the reply's last byte. Trying again can help."""

    code = "TRANSPORT_CLOSED"
    retryable = True
    deferrable = True
    isolable = True


class ContentRefused(ProviderError):
    """One of the inputs is at fault (too long, refused, not a number). Trying the same batch again does not help."""

    code = "INPUT_REFUSED"
    isolable = True


class ResponseInvalid(ProviderError):
    """A reply that does not hold what was asked for. Nothing of it was kept."""

    code = "RESPONSE_INVALID"
    isolable = True


class ModelChanged(ProviderError):
    """A reply names another model than the replies before it: its vectors would not be comparable. Nothing was kept."""

    code = "MODEL_CHANGED"


class ProviderAuthError(ProviderError):
    """The engine does not accept the key. Mend the key; trying again does not help."""

    code = "AUTH"


class QuotaExhausted(ProviderError):
    """A quota or a balance is used up. At fault is the account; waiting does not help, paying or raising it does."""

    code = "QUOTA"


class ProviderFailure(ProviderError):
    """The engine refused or failed in a way that has no kind of its own."""

    code = "PROVIDER_FAILED"
    isolable = True


class ProviderUnavailable(ProviderFailure):
    """The engine, or a proxy before it, failed for now (425, 499, 500, 502, 520 to 529). Trying again can help.

    One that repeats for the same batch while a control succeeds is an input's fault: see ``isolable``.
    """

    code = "PROVIDER_UNAVAILABLE"
    retryable = True
    deferrable = True


class StoreError(EmbedkitError):
    """The knowledge base on disk could not do what was asked; what was committed is still there."""

    code = "KB_STORE_FAILED"
    kind: ClassVar[str] = "store"


class StoreUnreadable(StoreError):
    """The file is no database, is corrupt, is of a newer version, or cannot be opened."""

    code = "KB_STORE_UNREADABLE"


class StoreFull(StoreError):
    """The disk is full."""

    code = "KB_STORE_FULL"


class StoreReadOnly(StoreError):
    """The file or its folder may not be written."""

    code = "KB_STORE_READ_ONLY"


class StoreLocked(StoreError):
    """Another process held the database longer than we wait. Trying again can help."""

    code = "KB_STORE_LOCKED"
    retryable = True


class StoreMoved(StoreError):
    """The file was removed, renamed or replaced while it was in use. Trying again opens what has its name now."""

    code = "KB_STORE_MOVED"


class SourceError(EmbedkitError):
    """A repository that cannot be read. At fault is its path, its permissions or its git remote."""

    code = "KB_SOURCE_UNREADABLE"
    kind: ClassVar[str] = "source"


def is_provider_timeout(error: object) -> bool:
    """Whether ``error`` is a provider's timeout: the one question every consumer asks.

    True for embedkit errors whose code is exactly one of four (whole, case-sensitive); false for everything else,
    whatever its text: a caller's abort, an open circuit, busy, model-load, refused, reset, any ``KB_`` code.
    """
    if not isinstance(error, EmbedkitError):
        return False
    try:
        code: object = error.code
    except Exception:  # of a class of somebody's own; total over any input
        return False
    return isinstance(code, str) and code in _TIMEOUT_CODES


def durable_code(code: str) -> str:
    """The code under which a failure is stored: each of the four timeout codes maps to the one durable timeout."""
    if code.startswith("KB_"):
        return code
    if code in _TIMEOUT_CODES:
        return _DURABLE + ProviderTimeout.code
    return _DURABLE + code
