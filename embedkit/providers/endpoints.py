"""Where a provider of the settings is reached, with its key and all that its section adds to each request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import attrs

from embedkit.providers.http import HttpEndpoint

if TYPE_CHECKING:
    from embedkit.settings import Settings


@attrs.frozen(eq=False)
class Reached:
    """A provider's endpoint.

    Attributes:
        endpoint: Where it is.
        secrets: What of its headers and parameters must never be shown.
    """

    endpoint: HttpEndpoint
    secrets: tuple[str, ...] = attrs.field(repr=False)


def endpoint_of(settings: Settings, name: str, environ: Mapping[str, str]) -> Reached:
    """The endpoint of provider ``name``, whose kind speaks HTTP with a bearer token. Nothing is sent.

    Raises:
        UsageError: Its key is not set, or something in its section cannot be sent.
    """
    described = settings.provider(name)
    assert described.base_url is not None  # the settings' own validation
    api_key = settings.api_key(name, environ)
    headers, of_headers = settings.added_to_requests(name, "headers", environ)
    query, of_query = settings.added_to_requests(name, "query", environ)
    is_given = "authorization" in {header.lower() for header in headers}
    key = [("Authorization", f"Bearer {api_key}")] if api_key and not is_given else []
    endpoint = HttpEndpoint(
        described.base_url,
        headers=(*key, *headers.items()),
        query=query,
        ca_file=described.ca_file,
        proxy=settings.proxy_for(name, environ),
    )
    return Reached(endpoint, tuple(secret for secret in (api_key, *of_headers, *of_query) if secret))
