"""What the environment adds to the settings. A blank value counts as unset; nothing read here is ever shown."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from embedkit.errors import SettingsError
from embedkit.settings.added import VARIABLE_IN_TEXT
from embedkit.settings.fields import written
from embedkit.settings.ladder import Limit
from embedkit.settings.redaction import shown

if TYPE_CHECKING:
    from embedkit.settings.model import Settings

_LARGEST_DIGITS = 12


def key_from(settings: Settings, name: str, environ: Mapping[str, str]) -> str | None:
    """The key of provider ``name``; ``None`` where it has no ``api_key_env``.

    Raises:
        SettingsError: The variable is unset, or holds what cannot stand in a header. Names the variable only.
    """
    provider = settings.provider(name)
    if (variable := provider.api_key_env) is None:
        return None
    secret = environ.get(variable, "").strip()
    if not secret:
        raise _key_error(
            settings, name, f'the environment variable "{variable}" is not set; export it, or name another'
        )
    if not (secret.isascii() and secret.isprintable()):
        fault = f'the environment variable "{variable}" holds characters that no key has; set it to the key alone'
        raise _key_error(settings, name, fault)
    return secret


def filled(
    settings: Settings, name: str, what: Literal["headers", "query"], environ: Mapping[str, str]
) -> tuple[dict[str, str], tuple[str, ...]]:
    """What provider ``name`` adds to each request, its ``${NAME}`` replaced, and the values that took their place.

    Raises:
        SettingsError: A variable is unset, or holds what cannot stand there. Names the variable only.
    """
    secrets: list[str] = []

    def value_of(found: re.Match[str]) -> str:
        value = _from_variable(settings, name, what, found[1], environ)
        secrets.append(value)
        return value

    table: Mapping[str, str] = getattr(settings.provider(name), what) or {}
    texts = {key: VARIABLE_IN_TEXT.sub(value_of, text) for key, text in table.items()}
    return texts, tuple(secrets)


def proxy_from(settings: Settings, name: str, environ: Mapping[str, str]) -> str | None:
    """The address of the proxy before provider ``name``, if there is one.

    Raises:
        SettingsError: The variable that holds it is unset.
    """
    address = settings.provider(name).proxy
    found = VARIABLE_IN_TEXT.fullmatch(address or "")
    return address if found is None else _from_variable(settings, name, "proxy", found[1], environ)


def _from_variable(settings: Settings, name: str, what: str, variable: str, environ: Mapping[str, str]) -> str:
    value = environ.get(variable, "").strip()
    if not value:
        fault = f'the environment variable "{variable}" is not set; export it, or name another'
        raise _key_error(settings, name, fault, what)
    if not (value.isascii() and value.isprintable()):
        fault = f'the environment variable "{variable}" holds characters that cannot be sent; set it to plain ASCII'
        raise _key_error(settings, name, fault, what)
    return value


def _key_error(settings: Settings, name: str, message: str, what: str = "api_key_env") -> SettingsError:
    key = written(("providers", name, what))
    file, line = settings.place_of(key)
    return SettingsError(message, file=file, line=line, key=key)


def shortest_answer(settings: Settings, name: str, environ: Mapping[str, str]) -> int:
    """Characters below which an answer of provider ``name`` is suspected; 0 for never.

    ``GEMINI_MIN_ANSWER_CHARS`` counts for kind ``gemini-cli``, before the file.

    Raises:
        SettingsError: The variable is no whole number.
    """
    if settings.provider(name).kind == "gemini-cli":
        asked = _whole(environ, "GEMINI_MIN_ANSWER_CHARS")
        if asked is not None:
            return asked
    return settings.ask.min_answer_chars


def upload_limit(settings: Settings, environ: Mapping[str, str]) -> Limit | None:
    """What one upload may take, ``None`` for no bound. ``GROK_UPLOAD_TIMEOUT_MS`` counts before the file.

    Raises:
        SettingsError: The variable is no whole number.
    """
    asked = _whole(environ, "GROK_UPLOAD_TIMEOUT_MS")
    if asked is None:
        limit = Limit(settings.ask.upload_timeout, "ask.upload_timeout")
    else:
        limit = Limit(asked / 1000, "GROK_UPLOAD_TIMEOUT_MS")
    return limit if limit.seconds else None


def _whole(environ: Mapping[str, str], variable: str) -> int | None:
    text = environ.get(variable, "").strip()
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= _LARGEST_DIGITS):
        raise SettingsError(f"{shown(text)} is not a whole number, 0 or more; unset it or set a number", key=variable)
    return int(text)
