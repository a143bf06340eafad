"""The table of engines' words: what they mean, and that nothing else of what an engine says is shown."""

from __future__ import annotations

import base64
import html
import json
import re
from datetime import UTC, datetime
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedkit.errors import ContentRefused, ProviderBusy, ProviderFailure, ProviderUnavailable
from embedkit.providers.engine_table import PHRASES
from embedkit.providers.engine_words import words_of
from embedkit.providers.exchange import Reply
from embedkit.providers.failures import Asked, failure_of
from embedkit.providers.secrets import without_secrets

NOW = datetime(2026, 3, 1, tzinfo=UTC)
TEXTS = ["The night train to the coast leaves at 22:40 from platform 3", "the \"pin\" is 4711\nand ü <b> & 'x' stay"]
KEY = "sk-Zq8/xT+two&9fZ"

TOO_LONG = [
    "This model's maximum context length is 8192 tokens, however you requested 9000 tokens",
    "Invalid 'input[0]': maximum context length is 8192 tokens.",
    "the input length exceeds the context length",
    "input length exceeds maximum context length",
    "request (600 tokens) exceeds the available context size (512 tokens), try increasing it",
    "input (600 tokens) is too large to process. increase the physical batch size (current batch size: 512)",
    "input is too large to process, please increase the physical batch size",
    "decoding exceeds the available context size. try increasing the context size.",
    "Illegal param: prefill 744 tokens exceed n_ctx_per_seq, try increasing total context size",
    "Input validation error: `inputs` must have less than 512 tokens. Given: 534",
    "`inputs` must have less than 32000 characters. Given: 67337",
    "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 8192]",
    "Input length 1024 exceeds maximum allowed token size 512",
    "the text is over the maximum allowed length",
    "maximum allowed length is 512",
    "The input token count (1200293) exceeds the maximum number of tokens allowed (1048576).",
    "Too many tokens in batch. Max is 16384 got 17555",
    "The max allowed tokens per submitted batch is 120000. Your batch has 124302 tokens after truncation.",
    "Single text cannot exceed 8194 tokens. 9000 tokens given.",
    "Too many input tokens. Max input tokens: 8192, request input token count: 9000",
    "expected maxLength: 2048, actual: 3000, please reformat your input and try again.",
    "String should have at most 8192 characters",
    "Token indices sequence length is longer than the specified maximum sequence length for this model (600 > 512)",
    "The size of tensor a (600) must match the size of tensor b (512) at non-singleton dimension 1",
    "index-select invalid index 512 with dim size 512",
    "input text is too long. maximum 3072 tokens are supported",
    "Please reduce the length of the input.",
    "prompt is too long: 9000 tokens > 8192 maximum",
    "the input exceeds the context window of this model",
    "tokens exceed the model's limit",
    "text must be shorter than 512 tokens",
    "document too large for the embedding model",
    "input must not exceed 512 tokens",
    "at most 512 tokens are accepted",
]


@pytest.mark.parametrize("said", TOO_LONG)
@pytest.mark.parametrize("status", [400, 413, 422, 424, 500, 501])
def test_too_long_in_other_words(said: str, status: int) -> None:
    error = failure_of(Reply(status, {}, json.dumps({"error": {"message": said}}).encode()), Asked("h:1", TEXTS, NOW))
    assert type(error) is ContentRefused
    assert error.code == "INPUT_TRUNCATED"


@pytest.mark.parametrize(
    ("said", "most"),
    [
        ("input batch size 136 > maximum allowed batch size 64", 64),
        ("batch size 33 > maximum allowed batch size 32", 32),
        ("Value error, batch size is invalid, it should not be larger than 10.: input.contents", 10),
        ("at most 100 requests can be in one batch", 100),
        ("invalid request: total number of texts must be at most 96 (received 200)", 96),
        ("List should have at most 2048 items after validation, not 4000", 2048),
        ("too many inputs in request", None),
    ],
)
@pytest.mark.parametrize("status", [400, 413, 422])
def test_too_many_inputs(said: str, most: int | None, status: int) -> None:
    error = failure_of(Reply(status, {}, json.dumps({"message": said}).encode()), Asked("h:1", TEXTS, NOW))
    assert type(error) is ContentRefused
    assert (error.code, error.max_inputs) == ("BATCH_TOO_LARGE", most)


@pytest.mark.parametrize(
    ("status", "said", "kind"),
    [
        (400, "Rate limit: tokens per minute exceeded", ProviderBusy),
        (400, "unknown field", ProviderFailure),
        (500, "broken", ProviderUnavailable),
        (501, "This server does not support embeddings. Start it with `--embeddings`", ProviderFailure),
        (400, "something about context", ProviderFailure),
        (400, "your input was read", ProviderFailure),
    ],
)
def test_what_is_not_too_long(status: int, said: str, kind: type[Exception]) -> None:
    error = failure_of(Reply(status, {}, json.dumps({"message": said}).encode()), Asked("h:1", TEXTS, NOW))
    assert type(error) is kind


@pytest.mark.parametrize(
    ("said", "index"),
    [
        ("Invalid 'input[1]': maximum context length is 512 tokens", 1),
        ("input.1 must not be empty", 1),
        ("inputs 1 is empty: input is invalid", 1),
        ("requests[1].content: contents is not specified", 1),
        ("input 600 tokens is too long", None),
        ("input[7] is invalid", None),
    ],
)
def test_the_input_at_fault(said: str, index: int | None) -> None:
    error = failure_of(Reply(400, {}, json.dumps({"message": said}).encode()), Asked("h:1", TEXTS, NOW))
    assert error.input_index == index


# -- what is shown -----------------------------------------------------------------------------------------------------


def vetted(text: str) -> bool:
    """Whether ``text`` is made of the table's phrases, with numbers in their holes."""
    rest = text
    for phrase in sorted(PHRASES, key=lambda phrase: -len(phrase.says)):
        if phrase.says:
            rest = re.sub(re.escape(phrase.says).replace(r"\{\}", r"(\d{1,7}|…)"), "", rest)
    return re.fullmatch(r"[; ]*", rest) is not None


@given(said=st.text(max_size=200) | st.sampled_from(TOO_LONG), text=st.text(min_size=1, max_size=60))
def test_nothing_is_shown_but_phrases_of_the_table(said: str, text: str) -> None:
    words = words_of({"error": {"message": f"{said} {text!r}"}}, [text], [KEY])
    assert vetted(words.shown)


QUOTES = {
    "plain": str,
    "repr": repr,
    "json": json.dumps,
    "json in utf-8": lambda text: json.dumps(text, ensure_ascii=False),
    "entities": html.escape,
    "percent": quote,
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "tokens": lambda text: str(text.split()),
    "upper": str.upper,
}


@pytest.mark.parametrize("quoted", QUOTES.values(), ids=QUOTES.keys())
@pytest.mark.parametrize("text", TEXTS)
def test_an_input_is_not_shown_however_it_is_quoted(quoted: object, text: str) -> None:
    assert callable(quoted)
    said = f"maximum context length is 512 tokens: {quoted(text)}"
    error = failure_of(Reply(400, {}, json.dumps({"error": {"message": said}}).encode()), Asked("h:1", [text], NOW))
    assert str(error) == "engine h:1 answered 400: an input is too long (maximum context length is 512 tokens)"


def test_a_number_that_stands_in_an_input_is_not_shown() -> None:
    asked = Asked("h:1", ["my pin is 4711"], NOW)
    error = failure_of(Reply(400, {}, b'{"error": "maximum context length is 4711 tokens"}'), asked)
    assert "4711" not in str(error)
    assert "maximum context length is … tokens" in str(error)


FORMS = {
    "plain": KEY,
    "percent": quote(KEY, safe=""),
    "base64": base64.b64encode(KEY.encode()).decode(),
    "base64 of a header": base64.b64encode(f"Bearer {KEY}".encode()).decode(),
    "base64 of a pair": base64.b64encode(f"me:{KEY}:you".encode()).decode(),
    "hex": KEY.encode().hex(),
    "json": "".join(f"\\u{ord(c):04x}" for c in KEY),
    "entities": "".join(f"&#{ord(c)};" for c in KEY),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
def test_a_key_is_taken_out_in_every_form_even_for_who_asks_to_see_the_words(form: str) -> None:
    shown: list[str] = []
    asked = Asked("h:1", TEXTS, NOW, (KEY,), shown.append)
    error = failure_of(Reply(401, {}, json.dumps({"error": {"message": f"no: {form}.", "code": form}}).encode()), asked)
    assert [form in text or KEY in text for text in (str(error), repr(error), *shown)] == [False] * (2 + len(shown))
    assert "(key)" in shown[0]


@given(before=st.binary(max_size=5), after=st.binary(max_size=5))
def test_a_key_within_what_is_base64_as_a_whole(before: bytes, after: bytes) -> None:
    encoded = base64.b64encode(before + KEY.encode() + after).decode()
    left = without_secrets(encoded, [KEY])
    # What is left of it are the letters that stand for bytes of the neighbours too.
    assert len(left.replace("(key)", "")) <= len(encoded) - len(KEY)


def test_whoever_asks_sees_the_words_and_nobody_else_does() -> None:
    shown: list[str] = []
    body = json.dumps({"error": {"message": "a sentence of its own"}}).encode()
    error = failure_of(Reply(418, {}, body), Asked("h:1", TEXTS, NOW, (), shown.append))
    assert shown == ["engine h:1 answered 418: a sentence of its own"]
    assert str(error) == "engine h:1 answered 418 (its own words are not shown; --show-engine-words does)"


@pytest.mark.parametrize("size", [1_000, 1_000_000])
def test_a_long_reason_and_long_inputs_take_no_time(size: int) -> None:
    """A bound on work, not on seconds: what is compared is cut to a fixed length."""
    words = words_of({"error": {"message": "model input token context " * size}}, ["model input token " * size] * 3)
    assert len(words.raw) <= 1_000
