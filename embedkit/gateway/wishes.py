"""What a client says in headers: its class, its tenant, its deadline, its run. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

import attrs

from embedkit.gateway.keyring import Client
from embedkit.gateway.refusals import Refusal, bad
from embedkit.settings.gateway_tables import GatewayClass

PRIORITY = "x-embedkit-priority"
TENANT = "x-embedkit-tenant"
DEADLINE = "x-embedkit-deadline"
RUN = "x-embedkit-run"

_LONGEST_NAME = 200
_NUMBER = re.compile(r"\d{1,9}(\.\d{1,9})?")


@attrs.frozen
class Wishes:
    """What holds for one request.

    Attributes:
        priority: Its class.
        tenant: Whose it is.
        deadline: Seconds for all of it; infinite without one.
        run: The id of its run, within its tenant.
    """

    priority: GatewayClass
    tenant: str | None
    deadline: float = math.inf
    run: str | None = None


def read_wishes(headers: Mapping[str, str], client: Client) -> Wishes:
    """What ``client`` wants by ``headers``, as far as it may.

    Raises:
        Refusal: A value that makes no sense, or a tenant that this client may not name.
    """
    asked = headers.get(PRIORITY)
    if asked not in (None, "interactive", "batch"):
        raise bad(f"{PRIORITY} is {asked[:40]!a}; it is interactive or batch", code="invalid_header")
    # A key's class is the highest that it gets.
    priority: GatewayClass = "batch" if "batch" in (asked, client.priority) else "interactive"
    tenant = client.tenant
    named = _name(headers, TENANT)
    if named is not None and named != tenant:
        if not client.may_name_tenants:
            raise Refusal(403, "tenant_not_trusted", f"the key {client.name!r} may not name tenants in {TENANT}")
        tenant = named
    return Wishes(priority, tenant, _deadline(headers), _name(headers, RUN))


def _deadline(headers: Mapping[str, str]) -> float:
    text = headers.get(DEADLINE)
    if text is None:
        return math.inf
    if not _NUMBER.fullmatch(text) or float(text) <= 0:
        raise bad(f"{DEADLINE} is {text[:40]!a}; it is a number of seconds over 0", code="invalid_header")
    return float(text)


def _name(headers: Mapping[str, str], header: str) -> str | None:
    text = headers.get(header)
    if text is not None and not (0 < len(text) <= _LONGEST_NAME and text.isprintable()):
        message = f"{header} is no name: 1 to {_LONGEST_NAME} printable characters in one line"
        raise bad(message, code="invalid_header")
    return text
