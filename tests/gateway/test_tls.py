"""TLS at the gateway's own door."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
import trustme
from gateways import ANY, open_house

from embedkit.errors import UsageError
from embedkit.gateway.listening import tls_of
from embedkit.providers.http import HttpEndpoint
from embedkit.providers.relay import Relay
from embedkit.settings import GatewaySettings


async def test_a_client_over_tls(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    certificate = authority.issue_cert("127.0.0.1")
    certificate.private_key_and_cert_chain_pem.write_to_path(tmp_path / "gateway.pem")
    async with open_house(gateway=GatewaySettings(listen=ANY, certificate=tmp_path / "gateway.pem")) as house:
        assert house.gateway.url.startswith("https://")
        relay = Relay(HttpEndpoint(f"{house.gateway.url}/v1", ca_file=tmp_path / "ca.pem"))
        for _ in range(2):
            head = await relay.ask("POST", "/embeddings", b'{"model": "scripted", "input": "a"}')
            assert head.status == 200
            while await relay.receive():
                pass
            assert relay.is_open
        await relay.aclose()
        # A client that speaks no TLS, and one that says nothing, cost nobody anything.
        for sent in (b"GET / HTTP/1.1\r\n\r\n", b""):
            stream = await trio.open_tcp_stream("127.0.0.1", house.gateway.port)
            async with stream:
                await stream.send_all(sent)
        house.check_balanced()


def test_a_certificate_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "empty.pem").write_text("")
    for name in ("empty.pem", "missing.pem"):
        with pytest.raises(UsageError, match=r"gateway\.certificate .* cannot be used"):
            tls_of(GatewaySettings(certificate=tmp_path / name))
    assert tls_of(GatewaySettings()) is None
