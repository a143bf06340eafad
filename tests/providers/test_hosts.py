"""A host that is no host is said in one line, wherever it stands; nothing is asked of a resolver."""

from __future__ import annotations

import pytest

from embedkit.errors import SettingsError, UsageError
from embedkit.providers.http import HttpEndpoint
from embedkit.settings import ProviderSettings

NO_HOSTS = [
    "foo..bar",
    "." + "a",
    "a" * 64,
    ".".join(["a" * 60] * 5),
    "xn--zzzzzz",
    "xn--",
    "a,b",
    "a b",
    "%66oo",
    "$host",
    "ü" * 64,
]
HOSTS = ["localhost", "127.0.0.1", "[::1]", "my_box.local", "box.", "bücher.example", "xn--bcher-kva.example", "a" * 63]


@pytest.mark.parametrize("host", NO_HOSTS)
def test_no_host_is_refused_by_the_endpoint(host: str) -> None:
    with pytest.raises(UsageError, match="base_url"):
        HttpEndpoint(f"http://{host}:8080/v1")


@pytest.mark.parametrize("host", NO_HOSTS)
def test_no_host_is_refused_by_the_settings(host: str) -> None:
    with pytest.raises(
        SettingsError, match=r"^providers\.<name>\.base_url: .*; write for example base_url = "
    ) as caught:
        ProviderSettings(kind="ollama", model="m", base_url=f"http://{host}:8080/v1")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("host", HOSTS)
def test_a_host_is_accepted_by_both(host: str) -> None:
    base_url = f"http://{host}:8080/v1"
    HttpEndpoint(ProviderSettings(kind="ollama", model="m", base_url=base_url).base_url or "")
