"""Who a client is, by the key it shows. Pure.

Keys are kept and compared as SHA-256 alone, each against all of them and in constant time: how long a comparison takes
says nothing of the keys there are. A key is logged nowhere; its name is.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence

import attrs

from embedkit.errors import SettingsError
from embedkit.gateway.refusals import Refusal
from embedkit.settings import GatewayKeySettings
from embedkit.settings.gateway_tables import GatewayClass

_BEARER = "bearer "


@attrs.frozen
class Client:
    """Who is asking.

    Attributes:
        name: The key's; empty where there are no keys.
        tenant: Whose work it is, unless a request says otherwise.
        priority: The highest class it gets.
        max_queued: How many requests of it may wait.
        may_name_tenants: Whether it is trusted to say whose work it is.
    """

    name: str = ""
    tenant: str | None = None
    priority: GatewayClass = "interactive"
    max_queued: int | None = None
    may_name_tenants: bool = True


ANYBODY = Client()


class Keyring:
    """The keys that open the door.

    Args:
        keys: As the settings describe them.
        environ: Where those are that stand in variables.

    Raises:
        SettingsError: A variable is not set, or two keys are the same.
    """

    def __init__(self, keys: Sequence[GatewayKeySettings], environ: Mapping[str, str]) -> None:
        self._clients: dict[bytes, Client] = {}
        for index, one in enumerate(keys):
            digest = _digest_of(one, index, environ)
            if digest in self._clients:
                raise SettingsError(
                    f"is the key of {self._clients[digest].name!r} too; give each its own", key=f"gateway.keys[{index}]"
                )
            tenant = one.name if one.tenant is None else one.tenant
            self._clients[digest] = Client(one.name, tenant, one.priority, one.max_queued, one.trust)

    def __bool__(self) -> bool:
        return bool(self._clients)

    def client(self, headers: Mapping[str, str]) -> Client:
        """Who shows these headers: a bearer token, or ``x-api-key``.

        Raises:
            Refusal: There are keys, and this is none of them.
        """
        if not self._clients:
            return ANYBODY
        shown = headers.get("authorization", "")
        token = shown[len(_BEARER) :].strip() if shown.lower().startswith(_BEARER) else headers.get("x-api-key", "")
        digest = hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
        found: Client | None = None
        for known, client in self._clients.items():
            if hmac.compare_digest(known, digest):
                found = client
        if found is None:
            what = "no key was shown" if not token else "the key is not known"
            raise Refusal(401, "invalid_api_key", f"{what}; show yours as `Authorization: Bearer KEY`")
        return found


def _digest_of(key: GatewayKeySettings, index: int, environ: Mapping[str, str]) -> bytes:
    if key.sha256 is not None:
        return bytes.fromhex(key.sha256)
    assert key.env is not None  # the settings' own validation
    secret = environ.get(key.env, "").strip()
    if not secret:
        message = f'the environment variable "{key.env}" is not set; export it, or name another'
        raise SettingsError(message, key=f"gateway.keys[{index}].env")
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()
