"""What the settings add to each request of a provider, and the way it takes. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import attrs

Purpose = Literal["document", "query"]
"""What a text is embedded for: to be found, or to find."""

# They change nothing of a vector, so a store is not bought anew when they change.
_NOT_OF_THE_SPACE = frozenset({"user", "encoding_format", "priority", "metadata", "keep_alive"})


@attrs.frozen
class Wire:
    """Beside the texts and the model.

    Attributes:
        headers: Added to each request, or in place of one that embedkit sends. They may hold keys.
        query: Parameters of the address. They may hold keys.
        body: Fields of the request.
        query_body: Fields of a request whose texts are queries; over ``body``.
        secrets: What of all that must never be shown, besides the key.
        ca_file: Certificates of further authorities, as PEM.
        proxy: An HTTP proxy's address.
        trust_env: Use the proxies and certificate files that the environment names.
    """

    headers: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    query: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    body: Mapping[str, object] = attrs.field(factory=dict, repr=False)
    query_body: Mapping[str, object] = attrs.field(factory=dict, repr=False)
    secrets: tuple[str, ...] = attrs.field(default=(), repr=False)
    ca_file: Path | None = None
    proxy: str | None = attrs.field(default=None, repr=False)
    trust_env: bool = False

    def fields(self, purpose: Purpose) -> dict[str, object]:
        """What is added to the body of a request for texts of ``purpose``."""
        return {**self.body, **self.query_body} if purpose == "query" else dict(self.body)

    @property
    def space_options(self) -> dict[str, str]:
        """What of it decides in which space the vectors live."""
        options = {}
        for name, fields in (("body", self.body), ("query_body", self.query_body)):
            counted = {key: value for key, value in fields.items() if key not in _NOT_OF_THE_SPACE}
            if counted:
                options[name] = json.dumps(counted, sort_keys=True, ensure_ascii=False)
        return options
