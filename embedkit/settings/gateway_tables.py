"""The tables of the gateway: where it listens, what it bears, and who may come."""

# ruff: noqa: RUF009  # key() makes an attrs field, whose place is the class body
from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Literal

import attrs

from embedkit.settings import rules
from embedkit.settings.fields import Fault, as_tuple, checked, instances, key, refuse, required, tables
from embedkit.settings.redaction import shown
from embedkit.settings.rules import Rule, optional

GatewayClass = Literal["interactive", "batch"]

_PLACE = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):(?P<port>\d{1,5})")
_UNIX = "unix:"
_SHA256 = re.compile(r"[0-9a-f]{64}")
_LARGEST_PORT = 65_535


@attrs.frozen
class Place:
    """Where to listen.

    Attributes:
        host: A name or address; ``None`` for a unix socket.
        port: 0 for any free one.
        path: Of a unix socket.
    """

    host: str | None = None
    port: int = 0
    path: Path | None = None

    def __str__(self) -> str:
        if self.path is not None:
            return f"{_UNIX}{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in (self.host or "") else f"{self.host}:{self.port}"


def place_of(text: str) -> Place | None:
    """The place that ``text`` names: ``127.0.0.1:8400``, ``[::1]:8400``, ``unix:/run/embedkit.sock``; else ``None``."""
    if text.startswith(_UNIX) and len(text) > len(_UNIX) and text.isprintable():
        return Place(path=Path(text[len(_UNIX) :]))
    found = _PLACE.fullmatch(text)
    if found is None or int(found["port"]) > _LARGEST_PORT:
        return None
    return Place(found["host"].strip("[]"), int(found["port"]))


def _to_places(value: Any) -> Any:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list | tuple):
        return value
    places = [place_of(text) if isinstance(text, str) else text for text in texts]
    return tuple(places) if all(isinstance(place, Place) for place in places) else value


def _to_hosts(value: Any) -> Any:
    return tuple(value) if isinstance(value, list | tuple) else value


def _frozen(value: Any) -> Any:
    return MappingProxyType(dict(value)) if isinstance(value, Mapping) else value


LISTEN = Rule(
    expects="an address such as host:port or unix:path, or an array of them",
    example='"127.0.0.1:8400"',
    accepts=lambda value: isinstance(value, tuple) and bool(value) and all(isinstance(one, Place) for one in value),
    schema={"type": ["string", "array"], "items": {"type": "string", "pattern": ":"}, "minItems": 1, "pattern": ":"},
    convert=_to_places,
)
HOSTS = Rule(
    expects="an array of host names",
    example='["models.example.org"]',
    accepts=lambda value: (
        isinstance(value, tuple) and all(isinstance(one, str) and one.strip() == one != "" for one in value)
    ),
    schema={"type": "array", "items": {"type": "string", "pattern": r"\S"}},
    convert=_to_hosts,
)
MODELS = Rule(
    expects="a table of models, each with the name of a provider",
    example='{ "small" = "box" }',
    accepts=lambda value: (
        isinstance(value, Mapping)
        and all(
            isinstance(part, str) and part.strip() and part.isprintable() for item in value.items() for part in item
        )
    ),
    schema={"type": "object", "additionalProperties": {"type": "string", "pattern": r"\S"}},
    convert=_frozen,
)
SHA256 = Rule(
    expects="the SHA-256 of a key, as 64 hexadecimal digits in lower case",
    example='"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"',
    accepts=lambda value: isinstance(value, str) and _SHA256.fullmatch(value) is not None,
    schema={"type": "string", "pattern": "^[0-9a-f]{64}$"},
    secret=True,
)


def _hidden(value: object) -> str:
    return "None" if value is None else "'***'"


@attrs.frozen(kw_only=True)
class GatewayKeySettings:
    """A key that clients show, and what it stands for."""

    section: ClassVar[str] = "gateway.keys[]."

    name: str = attrs.field(validator=checked, metadata=required(rules.TEXT, "unique among the keys; shown in logs"))
    env: str | None = key(
        optional(rules.VARIABLE), None, "the environment variable that holds the key; either this or `sha256`"
    )
    sha256: str | None = key(
        optional(SHA256), None, "the key's SHA-256 in hexadecimal; either this or `env`", show=_hidden
    )
    tenant: str | None = key(optional(rules.TEXT), None, "whose work it is", in_words="`name`")
    priority: GatewayClass = key(
        rules.one_of("interactive", "batch"), "interactive", "its class, unless a request asks for a lower one"
    )
    max_queued: int | None = key(
        optional(rules.COUNT), None, "requests of this key that may wait", in_words="`max_queued` of the provider"
    )
    trust: bool = key(rules.FLAG, False, "whether its requests may name tenants themselves")

    def __attrs_post_init__(self) -> None:
        refuse(self, self._faults)

    def _faults(self) -> Iterator[Fault]:
        if self.env is None and self.sha256 is None:
            yield Fault(("env",), 'missing; a key needs either env or sha256: write env = "TEAM_KEY"')
        if self.env is not None and self.sha256 is not None:
            yield Fault(("sha256",), "stands beside env; a key has one of the two: drop one")


@attrs.frozen(kw_only=True)
class GatewaySettings:
    """The gateway that other programs share an engine through."""

    section: ClassVar[str] = "gateway."

    listen: tuple[Place, ...] = key(
        LISTEN,
        (Place("127.0.0.1", 8400),),
        "where clients come: host:port, unix:path, or several",
        in_words='`"127.0.0.1:8400"`',
    )
    hosts: tuple[str, ...] = key(
        HOSTS, (), "names under which the page may be asked for, besides addresses and localhost", in_words="none"
    )
    max_body: int = key(rules.COUNT, 16 * 2**20, "bytes of a request's body at most")
    max_header: int = key(rules.COUNT, 32 * 2**10, "bytes of a request's head at most")
    read_timeout: float = key(rules.DURATION, 30.0, "seconds for a request to arrive whole")
    write_stall: float = key(
        rules.DURATION, 60.0, "seconds after which a client that does not read its answer is taken to be gone"
    )
    queue_deadline: float = key(rules.DURATION_OR_ZERO, 0.0, "seconds that a request may wait for a slot; 0: no bound")
    drain_timeout: float = key(rules.DURATION_OR_ZERO, 30.0, "seconds that the end waits for calls that are out")
    certificate: Path | None = key(optional(rules.PATH), None, "the certificate chain, as PEM: TLS on every address")
    certificate_key: Path | None = key(
        optional(rules.PATH), None, "the certificate's private key, as PEM", in_words="in `certificate`"
    )
    administration: bool = key(rules.FLAG, False, "whether Ollama's pull, push, create, copy and delete are passed on")
    models: Mapping[str, str] = key(
        MODELS, attrs.Factory(dict), "further names of models, each with its provider", in_words="none"
    )
    keys: tuple[GatewayKeySettings, ...] = attrs.field(
        default=(), converter=as_tuple, validator=instances, metadata=tables(GatewayKeySettings, "array")
    )

    def __attrs_post_init__(self) -> None:
        refuse(self, self._faults)

    def _faults(self) -> Iterator[Fault]:
        if self.certificate_key is not None and self.certificate is None:
            yield Fault(
                ("certificate_key",), f"{shown(str(self.certificate_key))} has no use without certificate: name that"
            )
