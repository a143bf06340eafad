"""What must never be shown: a key in whatever form it comes back, and what looks like anybody's key. Pure.

An engine, or a proxy before it, can quote the header that it was sent: plain, percent-encoded in an address, base64 in
a token, in hex, escaped in JSON, or as entities in a page.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from urllib.parse import quote

HIDDEN = "(key)"

_SHORTEST = 4  # what is shorter gives nothing away, and would hide half of every message
_ANYBODY = re.compile(r"\b(?:[spr]k-|hf_|jina_|pa-|nvapi-|gsk_|xai-|AIza)[\w*.\-]{4,400}|\b(?:Bearer|Basic) \S{1,2000}")


def without_secrets(text: str, secrets: Sequence[str]) -> str:
    """``text`` with every form of each secret, and whatever looks like a key, replaced by ``(key)``."""
    for secret in secrets:
        for form in _forms(secret):
            text = re.sub(re.escape(form), HIDDEN, text, flags=re.IGNORECASE)
    return _ANYBODY.sub(HIDDEN, text)


def holds_secret(text: str, secrets: Sequence[str]) -> bool:
    """Whether ``text`` holds a secret in any form, or what looks like a key."""
    return without_secrets(text, secrets) != text


@lru_cache(maxsize=32)
def _forms(secret: str) -> tuple[str, ...]:
    forms = {form for form in _encoded(secret) if len(form) >= _SHORTEST}
    return tuple(sorted(forms, key=len, reverse=True))


def _encoded(secret: str) -> Iterator[str]:
    raw = secret.encode("utf-8", "surrogatepass")
    yield secret
    yield quote(secret, safe="")
    yield "".join(f"%{byte:02X}" for byte in raw)
    yield raw.hex()
    yield "".join(f"\\u{ord(c):04x}" for c in secret)
    yield "".join(f"&#{ord(c)};" for c in secret)
    yield "".join(f"&#x{ord(c):x};" for c in secret)
    # The middle, for each of the three places that a text can have within another that is encoded as a whole.
    for before in range(3):
        whole = base64.b64encode(b"\0" * before + raw).decode("ascii")
        middle = whole[4 if before else 0 :].rstrip("=")[: -1 if (before + len(raw)) % 3 else None]
        yield middle
        yield middle.replace("+", "-").replace("/", "_")
