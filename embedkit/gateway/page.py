"""``/``: the page. One file beside this one, with its style and its script inside; it asks its own gateway alone."""

from __future__ import annotations

import secrets
from functools import cache
from importlib import resources

from embedkit.gateway.inbound import Header

_NONCE = b"NONCE"


def page() -> tuple[list[Header], bytes]:
    """The headers of the page, and the page."""
    nonce = secrets.token_urlsafe(12).encode("ascii")
    policy = (
        b"default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; connect-src 'self'; "
        b"img-src data:; script-src 'nonce-%s'; style-src 'nonce-%s'" % (nonce, nonce)
    )
    headers = [
        (b"content-type", b"text/html; charset=utf-8"),
        (b"content-security-policy", policy),
        (b"referrer-policy", b"no-referrer"),
        (b"x-content-type-options", b"nosniff"),
        (b"cache-control", b"no-store"),
    ]
    return headers, _text().replace(_NONCE, nonce)


@cache
def _text() -> bytes:
    return resources.files("embedkit.gateway").joinpath("page.html").read_bytes()
