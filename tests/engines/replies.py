"""What real engines answer, as their documentation and public reports have it: scripts of replies, one an engine.

A reply is written here in the engine's own shape, not in ours, so that reading it is a test of the provider.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from embedkit.errors import (
    ContentRefused,
    ModelNotResident,
    ProviderAuthError,
    ProviderBusy,
    ProviderError,
    ProviderFailure,
    ProviderUnavailable,
    QuotaExhausted,
)

VECTORS = [[0.25, -0.5], [0.5, 0.125]]


@attrs.frozen
class Refused:
    """A refusal, and what it has to become."""

    status: int
    body: Any
    kind: type[ProviderError]
    code: str
    headers: Mapping[str, str] = attrs.field(factory=dict)
    retry_after: float | None = None


@attrs.frozen
class Scripted:
    """An engine in its own words.

    Attributes:
        answer: To a batch of two.
        refusals: To a batch of two.
        models: What it lists, if it does; the model that is asked for is ``m``.
    """

    answer: Any
    refusals: Sequence[Refused]
    models: Any = None


def packed(vector: Sequence[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()


def openai(model: str = "m", *, packs: bool = False, usage: Any = None, **more: Any) -> Any:
    data = [
        {"object": "embedding", "index": index, "embedding": packed(vector) if packs else vector}
        for index, vector in enumerate(VECTORS)
    ]
    usage = {"prompt_tokens": 4, "total_tokens": 4} if usage is None else usage
    return {"object": "list", "data": data, "model": model, "usage": usage, **more}


def error(message: str, **more: Any) -> Any:
    return {"error": {"message": message, **more}}


LISTED = {"object": "list", "data": [{"id": "m", "object": "model", "created": 1, "owned_by": "x"}]}
SPENT = "You exceeded your current quota, please check your plan and billing details."

ENGINES: dict[str, Scripted] = {
    "vLLM": Scripted(
        openai(
            packs=True, id="embd-1", created=1, usage={"prompt_tokens": 4, "total_tokens": 4, "completion_tokens": 0}
        ),
        [
            Refused(
                400,
                {
                    "object": "error",
                    "message": "This model's maximum context length is 512 tokens. However, you requested 1451 tokens "
                    "in the input for embedding generation. Please reduce the length of the input.",
                    "type": "BadRequestError",
                    "param": None,
                    "code": 400,
                },
                ContentRefused,
                "INPUT_TRUNCATED",
            ),
            Refused(
                404,
                {"object": "error", "message": "The model `x` does not exist.", "type": "NotFoundError", "code": 404},
                ModelNotResident,
                "MODEL_NOT_RESIDENT",
            ),
            Refused(401, {"error": "Unauthorized"}, ProviderAuthError, "AUTH"),
        ],
        LISTED,
    ),
    "TEI": Scripted(
        openai(),
        [
            Refused(
                413,
                {
                    "message": "Input validation error: `inputs` must have less than 512 tokens. Given: 534",
                    "code": 413,
                    "type": "Validation",
                },
                ContentRefused,
                "INPUT_TRUNCATED",
            ),
            Refused(
                422,
                {"message": "batch size 33 > maximum allowed batch size 32", "code": 422, "type": "Validation"},
                ContentRefused,
                "BATCH_TOO_LARGE",
            ),
            Refused(
                429,
                {"message": "Model is overloaded", "code": 429, "type": "Overloaded"},
                ProviderBusy,
                "PROVIDER_BUSY",
            ),
            Refused(
                424, {"message": "Inference failed", "code": 424, "type": "Backend"}, ProviderFailure, "PROVIDER_FAILED"
            ),
        ],
    ),
    "Infinity": Scripted(
        openai(packs=True, id="infinity-1", created=1),
        [
            Refused(
                422,
                {
                    "detail": [
                        {
                            "type": "too_long",
                            "loc": ["body", "input"],
                            "msg": "List should have at most 2048 items after validation, not 4000",
                        }
                    ]
                },
                ContentRefused,
                "BATCH_TOO_LARGE",
            ),
            Refused(
                400,
                {"error": {"message": "Invalid model: x", "type": None, "param": None, "code": 400}},
                ProviderFailure,
                "PROVIDER_FAILED",
            ),
        ],
        LISTED,
    ),
    "LM Studio": Scripted(
        openai("text-embedding-m", usage={"prompt_tokens": 0, "total_tokens": 0}),
        [
            Refused(
                400,
                {"error": "Model was unloaded while the request was still in queue.."},
                ModelNotResident,
                "MODEL_NOT_RESIDENT",
            ),
            Refused(
                404,
                error(
                    'Failed to load model "x". Error: Model is not embedding.',
                    type="invalid_request_error",
                    param="model",
                    code="model_not_found",
                ),
                ModelNotResident,
                "MODEL_NOT_RESIDENT",
            ),
            Refused(
                400,
                {"error": "The model has crashed without additional information. (Exit code: 6)"},
                ProviderUnavailable,
                "PROVIDER_UNAVAILABLE",
            ),
        ],
        LISTED,
    ),
    "LiteLLM": Scripted(
        openai("text-embedding-3-small"),
        [
            Refused(
                400,
                error(
                    "litellm.BadRequestError: OpenAIException - This model's maximum context length is 8192 tokens, "
                    "however you requested 9001 tokens",
                    type=None,
                    param=None,
                    code="400",
                ),
                ContentRefused,
                "INPUT_TRUNCATED",
            ),
            Refused(
                401,
                error("Authentication Error, Invalid proxy server token passed.", type="auth_error", code="401"),
                ProviderAuthError,
                "AUTH",
            ),
            Refused(
                429,
                error("No deployments available for selected model, Try again in 60 seconds.", code="429"),
                ProviderBusy,
                "PROVIDER_BUSY",
                {"retry-after": "60"},
                60.0,
            ),
        ],
        {"object": "list", "data": [{"id": "openai/*", "object": "model"}]},
    ),
    "OpenRouter": Scripted(
        openai(
            "openai/m",
            packs=True,
            id="gen-1",
            provider="OpenAI",
            usage={"prompt_tokens": 4, "total_tokens": 4, "cost": 0.1},
        ),
        [
            Refused(
                402,
                error("This request requires more credits, or fewer max_tokens.", code=402),
                QuotaExhausted,
                "QUOTA",
            ),
            Refused(
                429,
                error("Rate limit exceeded: free-models-per-min.", code=429),
                ProviderBusy,
                "PROVIDER_BUSY",
                {"x-ratelimit-reset": "7"},
                7.0,
            ),
            Refused(502, error("Provider returned error", code=502), ProviderUnavailable, "PROVIDER_UNAVAILABLE"),
            Refused(200, error("Provider returned error", code=503), ProviderBusy, "PROVIDER_BUSY"),
            Refused(524, b"<html><title>524</title></html>", ProviderUnavailable, "PROVIDER_UNAVAILABLE"),
        ],
    ),
    "Azure OpenAI": Scripted(
        openai("text-embedding-3-small", packs=True),
        [
            Refused(
                429,
                error(
                    "Requests to the Embeddings_Create Operation under Azure OpenAI API version 2024-02-01 have "
                    "exceeded call rate limit of your current OpenAI S0 pricing tier. Please retry after 55 seconds.",
                    code="429",
                ),
                ProviderBusy,
                "PROVIDER_BUSY",
                {"retry-after": "55", "retry-after-ms": "54321"},
                54.321,
            ),
            Refused(
                401,
                error("Access denied due to invalid subscription key or wrong API endpoint.", code="401"),
                ProviderAuthError,
                "AUTH",
            ),
            Refused(
                404,
                error("The API deployment for this resource does not exist.", code="DeploymentNotFound"),
                ModelNotResident,
                "MODEL_NOT_RESIDENT",
            ),
            Refused(
                400,
                error(
                    "The response was filtered due to the prompt triggering content management policy.",
                    code="content_filter",
                ),
                ContentRefused,
                "INPUT_REFUSED",
            ),
        ],
    ),
    "NIM": Scripted(
        openai(),
        [
            Refused(
                400,
                {
                    "object": "error",
                    "message": "Input length 1024 exceeds maximum allowed token size 512",
                    "detail": {},
                    "type": "invalid_request_error",
                },
                ContentRefused,
                "INPUT_TRUNCATED",
            ),
            Refused(
                422,
                {"detail": [{"type": "missing", "loc": ["body", "input_type"], "msg": "Field required"}]},
                ProviderFailure,
                "PROVIDER_FAILED",
            ),
        ],
        LISTED,
    ),
    "Mistral": Scripted(
        openai(id="1"),
        [
            Refused(
                400,
                {
                    "object": "error",
                    "message": "Too many tokens in batch. Max is 16384 got 17555",
                    "type": "invalid_request_error",
                    "param": None,
                    "code": None,
                },
                ContentRefused,
                "INPUT_TRUNCATED",
            ),
            Refused(401, {"message": "Unauthorized", "request_id": "1"}, ProviderAuthError, "AUTH"),
            Refused(
                429,
                {"object": "error", "message": "Requests rate limit exceeded", "type": "rate_limited", "code": "1300"},
                ProviderBusy,
                "PROVIDER_BUSY",
            ),
        ],
        LISTED,
    ),
    "Voyage": Scripted(
        openai(packs=True, usage={"total_tokens": 4}),
        [
            Refused(
                400,
                {
                    "detail": "Request to model 'm' failed. The max allowed tokens per submitted batch is 120000. Your "
                    "batch has 124302 tokens after truncation. Please lower the number of tokens in the batch."
                },
                ContentRefused,
                "INPUT_TRUNCATED",
            ),
            Refused(401, {"detail": "Provided API key is invalid."}, ProviderAuthError, "AUTH"),
            Refused(
                429,
                {
                    "detail": "You have not yet added your payment method in the billing page and will have reduced "
                    "rate limits of 3 RPM and 10K TPM."
                },
                ProviderBusy,
                "PROVIDER_BUSY",
            ),
        ],
    ),
    "Jina": Scripted(
        openai(usage={"total_tokens": 4, "prompt_tokens": 4}),
        [
            Refused(
                400,
                {"detail": "Single text cannot exceed 8194 tokens. 9000 tokens given."},
                ContentRefused,
                "INPUT_TRUNCATED",
            ),
            Refused(402, {"detail": "Insufficient account balance"}, QuotaExhausted, "QUOTA"),
            Refused(401, {"detail": "Unauthorized"}, ProviderAuthError, "AUTH"),
        ],
    ),
    "OpenAI": Scripted(
        openai(packs=True),
        [
            Refused(
                400,
                error("Invalid 'input[1]': maximum context length is 8192 tokens.", type="invalid_request_error"),
                ContentRefused,
                "INPUT_TRUNCATED",
            ),
            Refused(429, error(SPENT, type="insufficient_quota", code="insufficient_quota"), QuotaExhausted, "QUOTA"),
            Refused(
                429,
                error("Rate limit reached for requests", type="requests", code="rate_limit_exceeded"),
                ProviderBusy,
                "PROVIDER_BUSY",
                {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "1m30s"},
                90.0,
            ),
            Refused(
                500,
                error("The server had an error while processing your request. Sorry about that!", type="server_error"),
                ProviderUnavailable,
                "PROVIDER_UNAVAILABLE",
            ),
        ],
        LISTED,
    ),
}


def body_of(document: Any) -> bytes:
    return document if isinstance(document, bytes) else json.dumps(document).encode()
