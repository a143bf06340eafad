"""claude-context#177: a reason that begins with ``<400>`` was taken for a web page, and the text was fenced whole."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from embedkit.errors import ContentRefused, ProviderBusy, ProviderUnavailable
from embedkit.providers.exchange import Reply
from embedkit.providers.failures import Asked, failure_of

ASKED = Asked("far:443", ["one text", "and another"], datetime(2026, 3, 1, tzinfo=UTC))


def test_a_reason_in_angle_brackets_is_read() -> None:
    said = "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 8192]"
    error = failure_of(Reply(400, {}, json.dumps({"error": {"message": said}}).encode()), ASKED)
    assert type(error) is ContentRefused
    assert error.code == "INPUT_TRUNCATED"
    assert "range of input length should be up to 8192" in str(error)


def test_a_bound_on_the_inputs_of_a_request_is_read() -> None:
    said = (
        "<400> InternalError.Algo.InvalidParameter: Value error, batch size is invalid, it should not be larger than 10"
    )
    error = failure_of(Reply(400, {}, json.dumps({"error": {"message": said}}).encode()), ASKED)
    assert type(error) is ContentRefused
    assert (error.code, error.max_inputs, error.input_index) == ("BATCH_TOO_LARGE", 10, None)


@pytest.mark.parametrize("page", ["<html>", "<!DOCTYPE html>", "  <HTML lang=en>", "<?xml version='1.0'?>"])
@pytest.mark.parametrize(("status", "kind"), [(502, ProviderUnavailable), (503, ProviderBusy)])
def test_a_web_page_says_nothing(page: str, status: int, kind: type[Exception]) -> None:
    body = f"{page}<body>the maximum context length is 512 tokens, your api key".encode()
    error = failure_of(Reply(status, {}, body), ASKED)
    assert type(error) is kind
    assert str(error) == f"engine far:443 answered {status}"
