"""Whether a browser was sent here by somebody else's page. Pure.

The page and what it reads show who uses an engine, so they are for those who mean to see them. A page of another site
can make a browser ask, but not hide that it did: it sends its ``Origin``. And a name of that site's own, pointed at
this machine (DNS rebinding), stands in ``Host``. So both are looked at. An address cannot be pointed elsewhere.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Mapping
from urllib.parse import urlsplit

from embedkit.gateway.refusals import Refusal

_FOREIGN_SITES = frozenset({"cross-site", "same-site"})


def check_visitor(headers: Mapping[str, str], names: Collection[str], *, is_local: bool) -> None:
    """Refuse what a foreign page asked for.

    Args:
        headers: Names in lower case.
        names: Host names, in lower case, under which the gateway is known.
        is_local: Whether it came over a unix socket, which no browser opens.

    Raises:
        Refusal: A foreign host or origin.
    """
    host = headers.get("host", "")
    if not is_local and not _is_known(host, names):
        message = "this Host is not one of the gateway's; use its address, or name the host in gateway.hosts"
        raise Refusal(403, "foreign_host", message)
    origin = headers.get("origin")
    is_foreign = origin is not None and urlsplit_host(origin) != host.lower()
    if is_foreign or headers.get("sec-fetch-site") in _FOREIGN_SITES:
        raise Refusal(403, "foreign_origin", "a page of another origin may not ask for this")


def urlsplit_host(origin: str) -> str | None:
    """``host:port`` of an origin, as it stands in ``Host``; ``None`` for what is none, such as ``null``."""
    try:
        return urlsplit(origin).netloc.lower() or None
    except ValueError:
        return None


def _is_known(host: str, names: Collection[str]) -> bool:
    try:
        name = urlsplit(f"//{host}").hostname
    except ValueError:
        return False
    if not name:
        return False
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name == "localhost" or name.endswith(".localhost") or name in names
    return True
