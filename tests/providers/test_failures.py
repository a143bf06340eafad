"""Each refusal of an engine is exactly one error; its message is one line and holds no input and no key."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedkit.errors import (
    ContentRefused,
    ModelNotResident,
    ProviderAuthError,
    ProviderBusy,
    ProviderError,
    ProviderFailure,
    ProviderUnavailable,
    ResponseInvalid,
)
from embedkit.providers.exchange import Reply
from embedkit.providers.failures import Asked, failure_inside, failure_of, format_after, is_error

NOW = datetime(2026, 3, 1, tzinfo=UTC)
INPUTS = ["a first text about databases", "a second text about gardens"]
ASKED = Asked("127.0.0.1:8080", INPUTS, NOW, ("sk-secret-123456",))


def reply(status: int, document: Any = None, headers: dict[str, str] | None = None) -> Reply:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return Reply(status, headers or {}, body)


def openai(message: str, **more: Any) -> dict[str, Any]:
    return {"error": {"message": message, **more}}


@pytest.mark.parametrize(
    ("status", "document", "kind", "code"),
    [
        (408, None, ProviderBusy, "PROVIDER_BUSY"),
        (429, openai("slow down"), ProviderBusy, "PROVIDER_BUSY"),
        (503, openai("Loading model", type="unavailable_error"), ProviderBusy, "PROVIDER_BUSY"),
        (504, b"<html>gateway</html>", ProviderBusy, "PROVIDER_BUSY"),
        (400, openai("Model was unloaded while in queue"), ModelNotResident, "MODEL_NOT_RESIDENT"),
        (
            400,
            openai("Failed to load model. Error: Operation canceled."),
            ModelNotResident,
            "MODEL_NOT_RESIDENT",
        ),
        (404, {"error": 'model "m" not found, try pulling it first'}, ModelNotResident, "MODEL_NOT_RESIDENT"),
        (404, b"404 page not found", ModelNotResident, "MODEL_NOT_RESIDENT"),
        (400, openai("Failed to load model: no such file"), ProviderFailure, "PROVIDER_FAILED"),
        (400, {"error": "the input length exceeds the context length"}, ContentRefused, "INPUT_TRUNCATED"),
        (
            400,
            openai("This model's maximum context length is 8192 tokens, you requested 9000"),
            ContentRefused,
            "INPUT_TRUNCATED",
        ),
        (
            400,
            openai("request exceeds the available size", type="exceed_context_size_error"),
            ContentRefused,
            "INPUT_TRUNCATED",
        ),
        (
            413,
            {"error": "`inputs` must have less than 512 tokens. Given: 600", "error_type": "Validation"},
            ContentRefused,
            "INPUT_TRUNCATED",
        ),
        (413, b"<html>413 Request Entity Too Large</html>", ContentRefused, "INPUT_TRUNCATED"),
        (
            500,
            openai("input (600 tokens) is too large to process. increase the physical batch size"),
            ContentRefused,
            "INPUT_TRUNCATED",
        ),
        (
            500,
            {"error": "failed to encode response: json: unsupported value: NaN"},
            ContentRefused,
            "INPUT_REFUSED",
        ),
        (400, openai("'$.input' is invalid", param="input"), ContentRefused, "INPUT_REFUSED"),
        (
            422,
            {"detail": [{"loc": ["body", "input", 1], "msg": "must not be empty"}]},
            ContentRefused,
            "INPUT_REFUSED",
        ),
        (401, openai("no"), ProviderAuthError, "AUTH"),
        (403, b"", ProviderAuthError, "AUTH"),
        (400, openai("API key not valid. Please pass a valid API key."), ProviderAuthError, "AUTH"),
        (301, b"", ProviderFailure, "PROVIDER_FAILED"),
        (308, b"", ProviderFailure, "PROVIDER_FAILED"),
        (400, openai("unknown field"), ProviderFailure, "PROVIDER_FAILED"),
        (500, openai("out of memory"), ProviderUnavailable, "PROVIDER_UNAVAILABLE"),
        (502, b"<html>bad gateway</html>", ProviderUnavailable, "PROVIDER_UNAVAILABLE"),
        (418, b"\xff\xfe", ProviderFailure, "PROVIDER_FAILED"),
        (501, openai("This server does not support embeddings"), ProviderFailure, "PROVIDER_FAILED"),
    ],
)
def test_one_error_for_each_refusal(status: int, document: Any, kind: type[ProviderError], code: str) -> None:
    error = failure_of(reply(status, document), ASKED)
    assert type(error) is kind
    assert error.code == code
    assert error.status == status
    assert str(error).startswith("engine 127.0.0.1:8080 answered ")


@pytest.mark.parametrize(
    "body",
    [
        b"<html><head><title>400 The plain HTTP request was sent to HTTPS port</title></head></html>",
        b"Client sent an HTTP request to an HTTPS server.\n",
        b"<!DOCTYPE HTML><html><p>Reason: You're speaking plain HTTP to an SSL-enabled server port.<br /></html>",
    ],
)
def test_a_server_that_was_asked_without_tls_says_so(body: bytes) -> None:
    error = failure_of(reply(400, body), ASKED)
    assert type(error) is ProviderFailure
    assert "it speaks TLS there; begin base_url with https://" in str(error)


def test_a_hint_is_read_on_429_and_503_only() -> None:
    hints = {
        status: failure_of(reply(status, None, {"retry-after": "9"}), ASKED).retry_after
        for status in (408, 429, 500, 503, 504)
    }
    assert hints == {408: None, 429: 9.0, 500: None, 503: 9.0, 504: None}


@pytest.mark.parametrize(
    ("document", "kind"),
    [
        ({"error": {"code": 429}}, ProviderBusy),
        ({"error": {"code": "429", "message": "slow"}}, ProviderBusy),
        (openai("slow", code="rate_limit_exceeded"), ProviderBusy),
        (openai("quota", code=8, status="RESOURCE_EXHAUSTED"), ProviderBusy),
        (openai("no key", type="authentication_error"), ProviderAuthError),
        ({"error": "model was unloaded"}, ModelNotResident),
        ({"error": "the input length exceeds the context length"}, ContentRefused),
        ({"error": "something"}, ResponseInvalid),
        ({"error": {"code": True}}, ResponseInvalid),
        ({"error": [1]}, ResponseInvalid),
        ({"error": {"code": 429}, "data": []}, ProviderBusy),
    ],
)
def test_an_error_that_came_with_200(document: Any, kind: type[ProviderError]) -> None:
    assert is_error(document)
    assert type(failure_inside(document, reply(200, document), ASKED)) is kind


def test_a_rate_limit_that_came_with_200_carries_the_header_s_hint() -> None:
    document = {"error": {"code": 429}}
    error = failure_inside(document, reply(200, document, {"retry-after": "4"}), ASKED)
    assert error.retry_after == 4.0


@pytest.mark.parametrize("document", [{"data": []}, {"error": None, "data": []}, [], "error", None, {"error": {}}])
def test_no_error_inside(document: Any) -> None:
    assert not is_error(document)


def test_the_input_at_fault_is_named_where_it_is_known() -> None:
    two = failure_of(reply(422, {"detail": [{"loc": ["body", "input", 1], "msg": "must not be empty"}]}), ASKED)
    assert two.input_index == 1
    alone = Asked("x:1", ["one"], NOW)
    assert failure_of(reply(413, b""), alone).input_index == 0
    assert failure_of(reply(413, b""), ASKED).input_index is None


@pytest.mark.parametrize(
    "message",
    [
        f"bad request: {INPUTS[0]}",
        f"bad request: {INPUTS[1][:25]}...",
        f"bad request: {INPUTS[1].upper()}",
        "bad request: a first text\n about databases",
    ],
)
def test_a_message_that_repeats_an_input_is_not_shown(message: str) -> None:
    text = str(failure_of(reply(400, openai(message)), ASKED)).lower()
    assert "databases" not in text
    assert "gardens" not in text


def test_an_input_that_talks_of_keys_is_no_authentication_failure() -> None:
    asked = Asked("x:1", ["how do I rotate an invalid api key", "short"], NOW)
    error = failure_of(reply(400, openai("cannot parse 'how do I rotate an invalid api key'")), asked)
    assert type(error) is ProviderFailure
    error = failure_of(reply(400, openai("the input 'how do I rotate an invalid api key' is too long")), asked)
    assert error.code == "INPUT_TRUNCATED"


def test_a_key_is_not_shown() -> None:
    for quoted in ("sk-secret-123456", "sk-other-****9876", "Bearer abcdefgh"):
        text = str(failure_of(reply(401, openai(f"Incorrect API key provided: {quoted}.")), ASKED))
        assert quoted not in text
        assert text.endswith("(API key not valid)")
    assert "secret" not in repr(ASKED)


def test_a_message_is_one_bounded_line() -> None:
    error = failure_of(reply(500, openai("broken\n\x1b[31m\u2028" + "x y " * 1000)), ASKED)
    assert str(error).isprintable()
    assert len(str(error)) < 300


@pytest.mark.parametrize("status", [400, 422])
def test_a_refusal_that_may_be_of_the_form_is_told_apart(status: int) -> None:
    def after(document: Any, form: Any = "base64", code: int = status) -> Any:
        return format_after(reply(code, document), form, ASKED)

    of_the_field = {"detail": [{"loc": ["body", "encoding_format"], "msg": "no"}]}
    assert after(openai("Unknown field: encoding_format")) == "float"
    assert after(of_the_field) == "float"
    assert after(of_the_field, "float") is None
    assert after(of_the_field, None) is None
    assert after(openai("something nobody knows")) == "float"
    assert after(openai("something nobody knows"), "float") == "float"
    for known in ("maximum context length is 512 tokens", "input 1 is empty", "Model was unloaded"):
        assert after(openai(known)) == "base64"
    assert after({"data": "base64"}, code=200) == "base64"
    assert after(openai("base64"), code=503) == "base64"


@given(status=st.integers(300, 599), body=st.binary(max_size=300) | st.text(max_size=100).map(str.encode))
def test_any_refusal_is_one_error(status: int, body: bytes) -> None:
    error = failure_of(Reply(status, {"retry-after": "x"}, body), ASKED)
    assert error.status == status
    assert "\n" not in str(error)


@given(
    document=st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=20),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["error", "message", "code", "detail", "loc", "type"]), inner, max_size=3)
        ),
        max_leaves=12,
    )
)
def test_any_document_is_classified(document: Any) -> None:
    failure_of(reply(400, document), ASKED)
    if is_error(document):
        failure_inside(document, reply(200, document), ASKED)
