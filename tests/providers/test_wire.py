"""What the settings add to each request arrives, and what of it decides the vectors is part of their space."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from embedkit.engine import open_engine
from embedkit.errors import SettingsError, UsageError
from embedkit.providers.http import HttpEndpoint
from embedkit.settings import EmbeddingSettings, ProviderSettings, Settings, StoreSettings, load_settings
from embedkit.settings.show import in_force
from embedkit.testing.engine_rules import noted_in
from embedkit.testing.engine_wire import EngineRequest
from embedkit.testing.scripted_engine import ScriptedEngine, open_scripted_engine

SECRET = "k-azure-123456"


def described(scripted: ScriptedEngine, kind: str = "openai-compatible", **more: Any) -> Settings:
    url = {"ollama": scripted.base_url, "gemini": scripted.gemini_url}.get(kind, scripted.openai_url)
    box = ProviderSettings(kind=kind, base_url=url, model="scripted", **more)  # type: ignore[arg-type]
    return Settings(providers={"box": box}, embedding=EmbeddingSettings(provider="box"))


async def seen_by_engine(kind: str = "openai-compatible", purpose: Any = "document", **more: Any) -> EngineRequest:
    seen: list[EngineRequest] = []
    async with open_scripted_engine(rules=[noted_in(seen)]) as scripted:
        environ = {"GEMINI_API_KEY": "g", "AZURE_KEY": SECRET}
        async with open_engine(described(scripted, kind, **more), environ=environ) as engine:
            await engine.embed(["one"], purpose=purpose)
    return seen[0]


async def test_headers_are_sent_with_their_variables() -> None:
    headers = {"api-key": "${AZURE_KEY}", "x-team": "search-${AZURE_KEY}-x", "User-Agent": "me"}
    request = await seen_by_engine(headers=headers)
    assert request.headers["api-key"] == SECRET
    assert request.headers["x-team"] == f"search-{SECRET}-x"
    assert request.headers["user-agent"] == "me"


@pytest.mark.parametrize("kind", ["openai-compatible", "ollama", "gemini"])
async def test_a_body_is_sent_beside_ours(kind: str) -> None:
    body = {"input_type": "passage", "nested": {"list": [1, 2.5, True, "x"]}}
    request = await seen_by_engine(kind, body=body)
    sent: Any = request.document
    assert (sent["requests"][0] if kind == "gemini" else sent).items() >= body.items()
    assert request.texts == ("one",)


async def test_a_query_has_fields_of_its_own() -> None:
    fields: dict[str, Any] = {"body": {"input_type": "passage", "user": "me"}, "query_body": {"input_type": "query"}}
    assert (await seen_by_engine(**fields)).document["input_type"] == "passage"
    asked = await seen_by_engine(purpose="query", **fields)
    assert (asked.document["input_type"], asked.document["user"]) == ("query", "me")


@pytest.mark.parametrize("kind", ["openai-compatible", "ollama", "gemini"])
async def test_prefixes_are_set_before_texts(kind: str) -> None:
    prefixes = {"document_prefix": "search_document: ", "query_prefix": "Instruct: find\nQuery: "}
    assert (await seen_by_engine(kind, **prefixes)).texts == ("search_document: one",)
    assert (await seen_by_engine(kind, "query", **prefixes)).texts == ("Instruct: find\nQuery: one",)


async def test_options_are_the_runner_s() -> None:
    request = await seen_by_engine("ollama", options={"num_batch": 512}, num_ctx=2048)
    assert request.document["options"] == {"num_batch": 512, "num_ctx": 2048}


async def test_parameters_are_in_each_address() -> None:
    lines: list[bytes] = []

    async def handle(stream: trio.SocketStream) -> None:
        async for data in stream:
            lines.append(bytes(data).split(b"\r\n")[0])
            body = b'{"data": [{"index": 0, "embedding": [1.0]}]}'
            await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))

    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, handle, [listener])
        url = f"http://127.0.0.1:{listener.socket.getsockname()[1]}/openai/deployments/d"
        query = {"api-version": "2024-10-21", "x": "a b&c"}
        box = ProviderSettings(kind="openai-compatible", base_url=url, model="d", query=query)
        settings = Settings(providers={"box": box}, embedding=EmbeddingSettings(provider="box"))
        async with open_engine(settings) as engine:
            await engine.embed(["one"])
        nursery.cancel_scope.cancel()
    tail = b"?api-version=2024-10-21&x=a%20b%26c HTTP/1.1"
    assert [line.replace(b"+", b"%20") for line in lines] == [
        b"GET /openai/deployments/d/models" + tail,
        b"POST /openai/deployments/d/embeddings" + tail,
    ]


# -- the space ---------------------------------------------------------------------------------------------------------


async def test_a_store_is_not_searched_with_other_prefixes(tmp_path: Path) -> None:
    async with open_scripted_engine() as scripted:
        plain = attrs.evolve(described(scripted), store=StoreSettings(path=tmp_path / "s"))
        spaces = []
        for more in (
            {},
            {"document_prefix": "d: "},
            {"query_prefix": "q: "},
            {"body": {"input_type": "passage"}},
            {"query_body": {"input_type": "query"}},
        ):
            box = attrs.evolve(plain.providers["box"], **more)
            async with open_engine(attrs.evolve(plain, providers={"box": box})) as engine:
                spaces.append(engine.space_of(8))
        assert all(one != other for place, one in enumerate(spaces) for other in spaces[:place])


async def test_what_changes_no_vector_changes_no_space() -> None:
    async with open_scripted_engine() as scripted:
        async with open_engine(described(scripted)) as engine:
            before = engine.space_of(8)
        more: dict[str, Any] = {"headers": {"x-team": "t"}, "query": {"v": "1"}, "body": {"user": "me"}}
        async with open_engine(described(scripted, **more)) as engine:
            assert engine.space_of(8) == before


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("headers", {"authorization": "Bearer sk-123456"}, "may be a key"),
        ("headers", {"api-key": "sk-123456"}, "may be a key"),
        ("headers", {"Host": "x"}, "embedkit writes the header Host itself"),
        ("headers", {"x y": "z"}, "no header's name"),
        ("headers", {"x": "sk-123456\nInjected: y"}, "no printable ASCII"),
        ("headers", {"x": ""}, "no printable ASCII"),
        ("headers", {"x": 1}, "no printable ASCII"),
        ("headers", "x: y", "is not a table of headers"),
        ("query", {"api_key": "sk-123456"}, "may be a key"),
        ("query", {"v": 1}, "are strings"),
        ("body", {"model": "other"}, "embedkit sends the field model itself"),
        ("body", {"input": ["sk-123456"]}, "embedkit sends the field input itself"),
        ("body", {"x": float("nan")}, "cannot be sent as JSON"),
        ("body", {"x": {1: 2}}, "cannot be sent as JSON"),
        ("query_prefix", "", "is not a string that is not empty"),
        ("query_prefix", "a\x00b", "is not a string that is not empty"),
        ("proxy", "http://me:sk-123456@proxy:1", "holds credentials"),
        ("proxy", "proxy:1", "is not a URL"),
        ("proxy", "socks5://proxy:1", "is not a URL"),
    ],
)
def test_what_cannot_be_sent_is_refused_unseen(name: str, value: object, reason: str) -> None:
    with pytest.raises(
        SettingsError, match=rf"^providers\.<name>\.{name}: .*{reason}.*; write for example {name} = "
    ) as caught:
        ProviderSettings(kind="openai-compatible", base_url="http://h/v1", model="m", **{name: value})  # type: ignore[arg-type]
    assert "sk-123456" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "more", [{"headers": {"api-key": "${NOT_SET}"}}, {"query": {"k": "${NOT_SET}"}}, {"proxy": "${NOT_SET}"}]
)
async def test_a_variable_that_is_unset_is_named(more: dict[str, Any]) -> None:
    async with open_scripted_engine() as scripted, open_engine(described(scripted, **more), environ={}) as engine:
        with pytest.raises(SettingsError, match=r'providers\.box\.\w+: the environment variable "NOT_SET" is not set'):
            await engine.embed(["one"])


def test_a_file_says_all_of_it_and_shows_no_secret(tmp_path: Path) -> None:
    (tmp_path / "embedkit.toml").write_text(
        """version = 1
[providers.azure]
kind = "openai-compatible"
base_url = "https://x.openai.azure.com/openai/deployments/d"
model = "d"
query = { api-version = "2024-10-21" }
ca_file = "ca.pem"
proxy = "${PROXY}"
[providers.azure.headers]
api-key = "${AZURE_KEY}"
[providers.azure.body]
user = "me"
[embedding]
provider = "azure"
chunk_tokens = 256
""",
        "utf-8",
    )
    settings = load_settings(tmp_path / "embedkit.toml")
    azure = settings.providers["azure"]
    assert azure.ca_file == tmp_path / "ca.pem"
    values = {item.key: (item.value, item.origin.rpartition(":")[2]) for item in in_force(settings)}
    assert values["providers.azure.headers.api-key"] == ("${AZURE_KEY}", "10")
    assert values["providers.azure.query.api-version"] == ("2024-10-21", "6")
    assert values["providers.azure.body.user"] == ("me", "12")
    assert values["embedding.chunk_tokens"] == (256, "15")
    assert repr(azure.headers) not in repr(azure)


# -- certificates ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [None, b"", b"no certificate"])
def test_a_file_of_certificates_that_is_none_is_said_at_once(content: bytes | None, tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(UsageError, match=r"^engine h:443: ca_file '.*' (cannot be read|holds no certificate)"):
        HttpEndpoint("https://h/v1", ca_file=file)


async def test_a_private_authority_is_trusted(tmp_path: Path) -> None:
    authority = pytest.importorskip("trustme").CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(context)
    async with open_scripted_engine() as scripted, trio.open_nursery() as nursery:

        async def tunnel(stream: trio.SSLStream[trio.SocketStream]) -> None:
            inner = await trio.open_tcp_stream("127.0.0.1", int(scripted.base_url.rpartition(":")[2]))
            async with stream, inner, trio.open_nursery() as both:
                both.start_soon(pipe, stream, inner)
                await pipe(inner, stream)
                both.cancel_scope.cancel()

        listeners = await trio.open_ssl_over_tcp_listeners(0, context, host="127.0.0.1", https_compatible=True)
        below: Any = listeners[0].transport_listener
        nursery.start_soon(trio.serve_listeners, tunnel, listeners)
        url = f"https://localhost:{below.socket.getsockname()[1]}/v1"
        box = ProviderSettings(kind="openai-compatible", base_url=url, model="scripted", ca_file=tmp_path / "ca.pem")
        settings = Settings(providers={"box": box}, embedding=EmbeddingSettings(provider="box"))
        async with open_engine(settings) as engine:
            assert (await engine.embed(["one"])).vectors.shape == (1, 8)
        nursery.cancel_scope.cancel()


async def pipe(source: Any, target: Any) -> None:
    try:
        while data := await source.receive_some(65536):
            await target.send_all(data)
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        pass


async def test_a_proxy_is_gone_through() -> None:
    asked: list[bytes] = []

    async def handle(stream: trio.SocketStream) -> None:
        async for data in stream:
            asked.append(bytes(data).split(b"\r\n")[0])
            await stream.send_all(b"HTTP/1.1 407 No\r\nContent-Length: 0\r\n\r\n")

    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, handle, [listener])
        proxy = f"http://127.0.0.1:{listener.socket.getsockname()[1]}"
        for url in ("http://far.invalid/v1", "https://far.invalid/v1"):
            box = ProviderSettings(kind="openai-compatible", base_url=url, model="m", proxy="${PROXY}", preflight=False)
            settings = Settings(providers={"box": box}, embedding=EmbeddingSettings(provider="box"))
            async with open_engine(settings, environ={"PROXY": proxy}) as engine:
                with pytest.raises(Exception, match=r"engine far\.invalid:\d+"):
                    await engine.embed(["one"])
        nursery.cancel_scope.cancel()
    assert asked == [b"POST http://far.invalid/v1/embeddings HTTP/1.1", b"CONNECT far.invalid:443 HTTP/1.1"]
