"""Keys: set or not. Their values are not looked at any further, and shown nowhere."""

from __future__ import annotations

from collections.abc import Sequence

import trio

from embedkit.doctor.finding import Finding, Subject
from embedkit.errors import SettingsError
from embedkit.settings import ProviderSettings


async def check_keys(subject: Subject) -> Sequence[Finding]:
    """Whether the variables that providers name are set.

    Cancellation:
        Nothing was changed.
    """
    await trio.lowlevel.checkpoint()
    return [_key(subject, name, described) for name, described in subject.settings.providers.items()]


def _key(subject: Subject, name: str, described: ProviderSettings) -> Finding:
    settings, environ = subject.settings, subject.environ
    try:
        settings.api_key(name, environ)
        settings.added_to_requests(name, "headers", environ)
        settings.added_to_requests(name, "query", environ)
        settings.proxy_for(name, environ)
    except SettingsError as error:
        return Finding("key", "error", f"provider {name}: {error}")
    if described.api_key_env is None:
        return Finding("key", "ok", f"provider {name}: needs none")
    return Finding("key", "ok", f"provider {name}: {described.api_key_env} is set")
