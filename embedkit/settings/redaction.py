"""What may be shown of a value: in one line, cut to a bearable length, and never with a key in it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping

_LONGEST = 80
_SECRET_NAME = re.compile(r"key|token|secret|passw|auth|credential|bearer", re.IGNORECASE)
_AUTHORITY = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*://)(?P<rest>.*)", re.DOTALL)


def redacted_url(text: str) -> str:
    """``text`` without what it says before an ``@`` and after a ``?``, if it is a URL; else ``text`` itself.

    A password with an unescaped ``/`` ends the authority early, so where the authority holds a colon everything up
    to the last ``@`` is hidden: a path that shows too little is better than a password that shows.
    """
    found = _AUTHORITY.match(text)
    if found is None:
        return text
    scheme, rest = found["scheme"], found["rest"]
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    if "@" in authority or (":" in authority and "@" in rest):
        rest = "***@" + rest.rpartition("@")[2]
    before, mark, _query = rest.partition("?")
    return scheme + before + (mark and "?***")


def names_a_secret(key: str) -> bool:
    """Whether a key of this name may hold a credential, so that its value is not to be shown."""
    return _SECRET_NAME.search(key) is not None


def shown(value: object) -> str:
    """``value`` as TOML writes it, in one line of at most 80 characters, credentials of URLs replaced."""
    match value:
        case bool():
            text = "true" if value else "false"
        case str():
            text = json.dumps(redacted_url(value), ensure_ascii=False)
        case float() if not math.isfinite(value):
            text = str(value)
        case int() if value.bit_length() > 256:
            text = "a number of more than 70 digits"
        case Mapping():
            text = "{" + ", ".join(str(key) for key in value) + "}"
        case list() | tuple():
            text = f"[{len(value)} elements]"
        case _:
            text = " ".join(str(value).split())
    text = "".join(character if character.isprintable() else "?" for character in text)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 4] + " ..."


def kind_of(value: object) -> str:
    """The type of ``value`` in TOML's words."""
    match value:
        case bool():
            return "a boolean"
        case str():
            return "a string"
        case int():
            return "a whole number"
        case float():
            return "a number"
        case Mapping():
            return "a table"
        case list() | tuple():
            return "an array"
        case _:
            return f"a {type(value).__name__}"
