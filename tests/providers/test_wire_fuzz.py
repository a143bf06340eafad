"""The wire, fuzzed: replies that were changed at random, in their structure and in their bytes.

Whatever arrives, one of three things comes of it: the vectors that the reply says, each on its own text; one of
embedkit's errors, in one line that shows nothing of what was sent; nothing else. A second reading, by the standard
library and loops, says what a reply says.
"""

from __future__ import annotations

import base64
import copy
import json
import math
import random
import resource
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import trio

from embedkit.errors import ProviderError
from embedkit.providers.exchange import Reply
from embedkit.providers.gemini import GeminiProvider
from embedkit.providers.http_provider import HttpProvider
from embedkit.providers.ollama import OllamaProvider
from embedkit.providers.openai_compatible import OpenAICompatibleProvider

DIMENSION = 3
KEY = "sk-fuzz-Q7/+xyz-42"
TEXTS = [
    "the first secret text of this batch",
    "zweiter Geheimtext, länger als der erste",
    "third: pin 90210 and more",
    "",
]

Rows = list[list[float] | None] | None


# -- a good reply in each language, and what it says ------------------------------------------------------------------


def good_openai(draw: random.Random, inputs: int) -> Any:
    data = []
    for index in range(inputs):
        vector = [round(draw.uniform(-1, 1), draw.choice([1, 3, 17])) for _ in range(DIMENSION)]
        packs = draw.random() < 0.4
        item = {"object": "embedding", "index": index, "embedding": pack(vector) if packs else vector}
        data.append(item)
    draw.shuffle(data)
    return {"object": "list", "data": data, "model": "m", "usage": {"prompt_tokens": 1}}


def good_ollama(draw: random.Random, inputs: int) -> Any:
    vectors = [[draw.uniform(-1, 1) for _ in range(DIMENSION)] for _ in range(inputs)]
    return {"model": "m", "embeddings": vectors, "total_duration": 1}


def good_gemini(draw: random.Random, inputs: int) -> Any:
    return {"embeddings": [{"values": [draw.uniform(-1, 1) for _ in range(DIMENSION)]} for _ in range(inputs)]}


def pack(vector: Sequence[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()


def said_openai(document: Any, inputs: int) -> Rows:
    items = document["data"]
    if not isinstance(items, list) or len(items) != inputs or not all(isinstance(item, dict) for item in items):
        return None
    given = [item.get("index", "left out") for item in items]
    if all(index is None or index == "left out" for index in given):
        places = list(range(inputs))
    else:
        if given.count("left out") == 1:
            given[given.index("left out")] = 0
        if not all(type(index) is int for index in given) or sorted(given) != list(range(inputs)):
            return None
        places = given
    rows: list[Any] = [None] * inputs
    for place, item in zip(places, items, strict=True):
        rows[place] = numbers_of(item.get("embedding"))
    return rows


def said_ollama(document: Any, inputs: int) -> Rows:
    rows = document["embeddings"]
    return [numbers_of(row) for row in rows] if isinstance(rows, list) and len(rows) == inputs else None


def said_gemini(document: Any, inputs: int) -> Rows:
    items = document["embeddings"]
    if not isinstance(items, list) or len(items) != inputs:
        return None
    return [numbers_of(item.get("values") if isinstance(item, dict) else None) for item in items]


def numbers_of(value: Any) -> list[float] | None:
    if isinstance(value, str):
        try:
            raw = base64.b64decode(value.encode("ascii"), validate=True)
        except (ValueError, UnicodeError):
            return None
        if len(raw) % 4 or base64.b64encode(raw).decode() != value:
            return None
        return list(struct.unpack(f"<{len(raw) // 4}f", raw))
    if not isinstance(value, list) or not all(type(number) in (int, float) for number in value):
        return None
    return value


def said(body: bytes, inputs: int, reader: Callable[[Any, int], Rows]) -> np.ndarray[Any, Any] | None:
    """The vectors that ``body`` says; ``None`` if it says none."""
    try:
        document = json.loads(body.decode("utf-8"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict) or document.get("error"):
        return None
    try:
        rows = reader(document, inputs)
    except KeyError:
        return None
    if rows is None or any(row is None or len(row) != DIMENSION for row in rows):
        return None
    try:
        with np.errstate(over="ignore"):
            vectors = np.array(rows, dtype=np.float64).astype(np.float32).reshape(inputs, DIMENSION)
    except OverflowError:
        return None
    return vectors if np.isfinite(vectors).all() else None


Language = tuple[Callable[[random.Random, int], Any], Callable[[Any, int], Rows], Callable[[], HttpProvider]]
LANGUAGES: Mapping[str, Language] = {
    "openai": (
        good_openai,
        said_openai,
        lambda: OpenAICompatibleProvider("here", "http://host:1/v1", "m", api_key=KEY, dimension=DIMENSION),
    ),
    "ollama": (
        good_ollama,
        said_ollama,
        lambda: OllamaProvider("here", "http://host:1", "m", api_key=KEY, dimension=DIMENSION),
    ),
    "gemini": (
        good_gemini,
        said_gemini,
        lambda: GeminiProvider("here", "m", KEY, base_url="http://host:1", dimension=DIMENSION),
    ),
}

# Half a pair of surrogates, and numbers of hundreds of digits: json reads them, and orjson does not.
FORGIVEN = (b"\\ud800", b"\xed\xa0\x80", b"0" * 300)

# -- what is done to it ------------------------------------------------------------------------------------------------

# fmt: off
ODD: list[Any] = [
    None, True, False, 0, 1, -1, 2, 10**30, -(10**400), 1e308, 1e39, -1e-320, 0.5, math.nan, math.inf, "", "0", "1.5",
    "AAAA", pack([1.0, 2.0, 3.0]), pack([math.nan, 0.0, 0.0]), pack([1.0]), "ÿ", "\ud800", TEXTS[0], KEY, [], {}, [[]],
    [0.0] * DIMENSION, [0.0] * (DIMENSION + 1), [None] * DIMENSION, ["1"] * DIMENSION, {"index": 0},
    [[1.0]] * DIMENSION,
    {"message": f"maximum context length is 512 tokens: {TEXTS[1]}"}, "x" * 3_000,
]
# fmt: on
NAMES = ["index", "embedding", "data", "embeddings", "values", "error", "message", "model", "code", "status", "detail"]


def odd(draw: random.Random) -> Any:
    return copy.deepcopy(draw.choice(ODD))  # or a later change would change it for all


def places(document: Any) -> list[tuple[Any, Any]]:
    """Every container in ``document`` with each of its keys."""
    found: list[tuple[Any, Any]] = []
    waiting = [document]
    while waiting:
        current = waiting.pop()
        keys = list(current) if isinstance(current, dict) else range(len(current)) if isinstance(current, list) else ()
        for key in keys:
            found.append((current, key))
            waiting.append(current[key])
    return found


def change(draw: random.Random, document: Any) -> Any:
    """``document`` with one thing changed."""
    known = places(document)
    if not known:
        return odd(draw)
    container, key = draw.choice(known)
    match draw.randrange(7):
        case 0:
            container[key] = odd(draw)
        case 1:
            del container[key]
        case 2 if isinstance(container, list):
            container.insert(draw.randrange(len(container) + 1), container[key])
        case 3 if isinstance(container, list):
            other = draw.randrange(len(container))
            container[key], container[other] = container[other], container[key]
        case 4 if isinstance(container, dict):
            container[draw.choice(NAMES)] = odd(draw)
        case 5 if isinstance(container, dict):
            container[draw.choice(NAMES)] = container.pop(key)
        case _:
            source, place = draw.choice(known)
            if isinstance(source, dict | list) and (
                place in source if isinstance(source, dict) else place < len(source)
            ):
                container[key] = json.loads(json.dumps(source[place]))
    return document


def spoil(draw: random.Random, body: bytes) -> bytes:
    """``body`` with some of its bytes changed."""
    at, other = sorted((draw.randrange(len(body) + 1), draw.randrange(len(body) + 1)))
    match draw.randrange(6):
        case 0:
            return body[:at]
        case 1:
            return body[:at] + bytes([draw.randrange(256)]) + body[at + 1 :]
        case 2:
            return body[:at] + body[other:]
        case 3:
            return body[:other] + body[at:]
        case 4:
            return (
                body[:at] + draw.choice([b",", b"[", b"]", b"{", b"}", b'"', b"-", b"1", b"NaN", b"\x00"]) + body[at:]
            )
        case _:
            return body[:at] + draw.choice([b"[", b'{"a":', b"[],", b"9"]) * draw.randrange(2_000) + body[at:]


def check(draw: random.Random, name: str) -> str:
    """One reply; what came of it."""
    make, reader, provider_of = LANGUAGES[name]
    inputs = draw.randrange(1, 5)
    texts = TEXTS[:inputs]
    document = make(draw, inputs)
    for _ in range(draw.choice([0, 1, 1, 1, 2, 3])):
        document = change(draw, document)
    body = json.dumps(document, ensure_ascii=draw.random() < 0.7).encode("utf-8", "surrogatepass")
    is_spoiled = draw.random() < 0.3
    if is_spoiled:
        body = spoil(draw, body)
    status = draw.choice([200] * 8 + [201, 400, 401, 413, 422, 429, 500, 503])
    expected = said(body, inputs, reader) if status < 300 else None
    provider = provider_of()
    shown: list[str] = []
    provider._show_words = shown.append
    try:
        vectors = provider.read(Reply(status, {"retry-after": str(draw.choice(ODD))[:20]}, body), texts)
    except ProviderError as error:
        check_error(error, shown)
        # What one reader forgives and the other does not is nobody's wrong vector.
        assert expected is None or is_spoiled or any(part in body for part in FORGIVEN)
        return "refused"
    assert expected is not None, body
    assert vectors.dtype == np.float32
    np.testing.assert_array_equal(vectors, expected)
    return "taken"


def check_error(error: ProviderError, shown: Sequence[str]) -> None:
    said = f"{error} {error!r} {error.code}"
    assert "\n" not in said
    assert said.isprintable()
    assert len(str(error)) < 500
    for text in TEXTS[:3]:
        assert text[:12].lower() not in said.lower()
    assert "90210" not in said
    assert KEY not in said
    assert all(KEY not in words for words in shown)


@pytest.mark.parametrize("name", LANGUAGES)
def test_two_thousand_replies(name: str) -> None:
    draw = random.Random(f"two thousand {name}")
    outcomes = [check(draw, name) for _ in range(667)]
    assert 50 < outcomes.count("taken") < 600


async def raw_replies(draw: random.Random, count: int) -> int:
    """As many replies over one socket after the other, head and all changed in their bytes; how many were taken."""
    texts = TEXTS[:2]
    sent = b""

    async def handle(stream: trio.SocketStream) -> None:
        try:
            await stream.receive_some(65_536)
            await stream.send_all(sent)
        except trio.BrokenResourceError:
            pass  # it has seen enough

    taken = 0
    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, handle, [listener])
        url = f"http://127.0.0.1:{listener.socket.getsockname()[1]}/v1"
        provider = OpenAICompatibleProvider("here", url, "m", api_key=KEY, dimension=DIMENSION)
        for _ in range(count):
            body = json.dumps(good_openai(draw, 2)).encode()
            head = f"HTTP/1.1 {draw.choice([200, 200, 200, 429, 500])} OK\r\nContent-Type: application/json\r\n"
            length = draw.choice([len(body), len(body), 0, 5, len(body) + 9])
            sent = f"{head}Content-Length: {length}\r\n\r\n".encode() + body
            if draw.random() < 0.8:
                sent = spoil(draw, sent)
            try:
                async with provider.connect() as connection:
                    vectors = await connection.embed(texts)
            except ProviderError as error:
                check_error(error, [])
            else:
                taken += 1
                at = sent.find(b'{"object"')
                expected = said(sent[at:] if at >= 0 else sent, 2, said_openai)
                if expected is not None:
                    np.testing.assert_array_equal(vectors, expected)
        nursery.cancel_scope.cancel()
    return taken


async def test_three_hundred_replies_over_a_socket() -> None:
    assert 10 < await raw_replies(random.Random("over a socket"), 300) < 200


@pytest.mark.soak
async def test_ten_thousand_replies_over_a_socket() -> None:
    assert await raw_replies(random.Random(), 10_000) > 100


@pytest.mark.soak
@pytest.mark.parametrize("name", LANGUAGES)
def test_a_hundred_thousand_replies(name: str) -> None:
    draw = random.Random()
    seed = draw.randrange(2**32)
    draw.seed(seed)
    for _ in range(2_000):
        check(draw, name)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number in range(31_334):
        try:
            check(draw, name)
        except BaseException as error:
            error.add_note(f"seed {seed}, reply {number}")
            raise
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024
