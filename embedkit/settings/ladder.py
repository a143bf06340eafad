"""The timeout ladder: which of five rungs bounds an attempt.

request > ``models.<id>.timeout`` > ``providers.<name>.timeout`` > ``providers.defaults.timeout`` > the kind's own.

A rung that is not a positive finite number is dropped with a warning, and the next one serves: a service must not
lose its limit, or not start, over a mistyped one. Whoever fires a limit says the rung that set it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import attrs

from embedkit.settings.fields import KeyPath, written
from embedkit.settings.kinds import KINDS
from embedkit.settings.redaction import shown
from embedkit.settings.rules import is_limit, seconds

if TYPE_CHECKING:
    from embedkit.settings.model import Settings
    from embedkit.settings.tables import ProviderSettings

Warn = Callable[[str], None]


@attrs.frozen
class Limit:
    """How long one attempt may take.

    Attributes:
        seconds: From dispatch to the last byte of the body.
        rung: Who set it, to be printed: ``providers.box.timeout (embedkit.toml:12)``.
    """

    seconds: float
    rung: str


def warn_on_stderr(message: str) -> None:
    """Say ``message`` in one line on standard error."""
    sys.stderr.write(f"warning: {message}\n")


def usable(value: object, rung: str, warn: Warn) -> float | None:
    """``value`` as seconds if it can bound an attempt; else ``None``, and unless it was ``None`` a warning."""
    if value is None:
        return None
    if is_limit(value):
        limit: float = seconds(value)
        return limit
    warn(f"{rung}: {shown(value)} is not a positive finite number of seconds; the ladder's next rung serves")
    return None


def climb(
    settings: Settings, name: str, provider: ProviderSettings, *, request: object, model: str | None, warn: Warn
) -> Limit:
    """The first rung that holds a limit.

    Args:
        settings: What is in force.
        name: The provider's name in them.
        provider: Its settings.
        request: The caller's own limit in seconds, unchecked; ``None`` for none.
        model: Whose rung of the second kind counts; ``None`` for the provider's own model.
        warn: Told about a request that is no limit.
    """
    if (asked := usable(request, "the request's timeout", warn)) is not None:
        return Limit(asked, "the request's timeout")
    model = provider.model if model is None else model
    tuned = settings.models.get(model) if model is not None else None
    rungs: list[tuple[KeyPath, float | None]] = [
        (("models", model or "", "timeout"), tuned.timeout if tuned is not None else None),
        (("providers", name, "timeout"), provider.timeout),
        (("providers", "defaults", "timeout"), settings.provider_defaults.timeout),
    ]
    for path, limit in rungs:
        if limit is not None:
            return Limit(limit, _told(settings, written(path)))
    return Limit(KINDS[provider.kind].timeout, f"the default of kind {provider.kind}")


def _told(settings: Settings, key: str) -> str:
    origin = (settings.origins or {}).get(key)
    return f"{key} ({origin})" if origin else key
