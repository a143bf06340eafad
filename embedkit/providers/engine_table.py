"""The words of engines: what each phrase means, where it was seen, and what of it may be shown. Pure data.

A phrase is looked for in an engine's reason, from which what it quotes of the inputs and the key is taken out. What is
shown is never the engine's own text, which may hold anything, but what stands here under ``says``, with the numbers
that the pattern has caught. Words decide where they are known; where they are not, evidence does (see ``isolable`` in
``embedkit.errors``), so a missing phrase costs a few calls and no data.

Patterns are linear in the reason, which is at most a thousand characters: every repetition is bounded.
"""

from __future__ import annotations

import re
from typing import Literal

import attrs

Meaning = Literal[
    "too-long",
    "too-many",
    "no-vector",
    "not-loaded",
    "crashed",
    "no-embeddings",
    "key",
    "one-input",
    "format",
    "quota",
    "busy",
    "speaks-tls",
    "told",
]
"""What a phrase says.

``too-long``: an input, or all of them together, over a window. ``too-many``: more inputs than one request may have.
``no-vector``: NaN. ``not-loaded``: the model is not in memory. ``crashed``: its process ended. ``no-embeddings``: it
gives none, whatever is sent. ``key``: the key. ``one-input``: an input is refused. ``format``: base64 is.
``quota``: something is used up that waiting does not bring back. ``busy``: a rate is exceeded. ``speaks-tls``: it was
asked without. ``told``: nothing is decided by it.
"""


@attrs.frozen(eq=False)
class Phrase:
    """Words of an engine.

    Attributes:
        means: What they say.
        pattern: How they are found; case does not matter.
        says: What may be shown, with ``{}`` for each number that the pattern has caught; empty: nothing.
        seen: The engine, its version where that is known, and a public report that quotes it; or that a real one was
            run. Where neither stands, it is known from documentation alone.
    """

    means: Meaning
    pattern: re.Pattern[str]
    says: str
    seen: str


def _phrase(means: Meaning, pattern: str, says: str, seen: str) -> Phrase:
    return Phrase(means, re.compile(pattern, re.IGNORECASE | re.DOTALL), says, seen)


_N = r"(\d{1,7})"

PLAIN_HTTP = (
    r"plain HTTP request was sent to HTTPS port|HTTP request to an HTTPS server|speaking plain HTTP to an SSL-enabled"
)
"""Looked for in web pages too, of which nothing else is read."""

# A phrase a line, or two: as a table.
# fmt: off
PHRASES = (
    # -- an input over the window ------------------------------------------------------------------------------------
    _phrase("too-long", r"exceed_context_size", "exceed_context_size_error", "llama.cpp, run here"),
    _phrase("too-long", rf"input \({_N} tokens\) is too large to process", "input ({} tokens) is too large to process",
            "llama.cpp, run here; canonical/inference-snaps#344"),
    _phrase("too-long", rf"current batch size: {_N}", "current batch size: {}", "llama.cpp, run here"),
    _phrase("too-long", r"too large to process", "input is too large to process", "llama-box 0.0.70, gpustack#472"),
    _phrase("too-long", rf"prefill {_N} tokens exceed n_ctx", "prefill {} tokens exceed n_ctx",
            "llama-box, gpustack#1845"),
    _phrase("too-long", r"exceeds? (the )?(available|maximum|max|model'?s?) context (size|length|window)",
            "exceeds the context size", "llama.cpp, run here; llama-box, gpustack#1359"),
    _phrase("too-long", r"input length exceeds (the|maximum) context length", "input length exceeds the context length",
            "Ollama, n8n#11144, ollama#14186"),
    _phrase("too-long", rf"maximum (context|input|model) length (is|of) {_N} tokens",
            "maximum context length is {} tokens", "OpenAI, agent-memory#104; vLLM#19798"),
    _phrase("too-long", rf"you requested {_N} tokens", "requested {} tokens",
            "OpenAI, PubSec-Info-Assistant#755; vLLM#19798"),
    _phrase("too-long", rf"must have less than {_N} (tokens|characters)", "must have less than {} tokens",
            "TEI 1.1.0, TEI#356, #394; SiliconFlow, ApeRAG#817"),
    _phrase("too-long", rf"must have less than .{{0,20}}? given:? {_N}", "given: {}", "TEI 1.1.0, TEI#356"),
    _phrase("too-long", rf"range of input length should be \[\s?\d{{1,3}}, ?{_N}\]",
            "range of input length should be up to {}", "DashScope, claude-context#177"),
    _phrase("too-long", rf"input length {_N} exceeds maximum allowed token size {_N}",
            "input length {} exceeds maximum allowed token size {}", "NVIDIA NIM, llama_index#15180, nim-anywhere#58"),
    _phrase("too-long", rf"input token count.{{0,20}}exceeds the maximum number of tokens allowed \({_N}\)",
            "input token count exceeds the maximum of {}", "Gemini, gemini-cli#4692"),
    _phrase("too-long", rf"too many tokens in batch.{{0,5}}max is {_N} got {_N}",
            "too many tokens in batch: max is {}, got {}", "Mistral, semantic-router#297"),
    _phrase("too-long", rf"max(imum)? allowed tokens per submitted batch is {_N}", "max allowed tokens per batch is {}",
            "Voyage, claude-self-reflect#38"),
    _phrase("too-long", rf"(single )?text cannot exceed {_N} tokens", "a text cannot exceed {} tokens", "Jina"),
    _phrase("too-long", rf"max input tokens: {_N}", "max input tokens: {}", "Bedrock Titan"),
    _phrase("too-long", rf"expected maxlength: {_N}, actual: {_N}", "expected maxLength: {}, actual: {}",
            "Bedrock Cohere"),
    _phrase("too-long", rf"should have at most {_N} character", "should have at most {} characters",
            "FastAPI with pydantic 2"),
    _phrase("too-long", rf"maximum allowed length (is |of |: ?)?{_N}?", "maximum allowed length",
            "reported without its engine"),
    _phrase("too-long", rf"maximum sequence length.{{0,40}}\({_N} > {_N}\)", "maximum sequence length ({} > {})",
            "transformers 4"),
    _phrase("too-long", rf"size of tensor a \({_N}\) must match the size of tensor b \({_N}\)",
            "size of tensor a ({}) must match the size of tensor b ({})", "sentence-transformers behind FastAPI"),
    _phrase("too-long", r"index-select invalid index", "index-select invalid index", "Meilisearch 1.6.0, #4370"),
    _phrase("too-long", r"string_too_long|context_length_exceeded|max_tokens_per_request", "context_length_exceeded",
            "OpenAI, OpenRouter, pydantic 2"),
    _phrase("too-long", r"reduce the (length|size) of (the|your) (input|prompt|messages|text)", "", "OpenAI, vLLM"),
    # Their grammar, for engines that nobody has reported yet: what is over a bound, and which bound.
    _phrase("too-long", r"(exceed|over |above|beyond|more than|larger|longer|greater|bigger|fit ).{0,50}"
            r"(context|token|sequence|input|prompt|text|maximum|max\b).{0,20}"
            r"(length|size|window|limit|tokens|count|bound)", "", "many"),
    _phrase("too-long", r"(context|token|sequence|input|prompt|text|document|passage|content|chunk)s?\b.{0,40}"
            r"(exceed|too (long|large|big)|over the limit|(longer|larger|greater) than"
            r"|must be (shorter|less|under|at most))", "", "many"),
    _phrase("too-long",
            r"too many (input |prompt )?(tokens|characters|words)|token limit"
            r"|context (window|length) (error|limit|overflow)"
            r"|(maximum|max\.?|at most|up to|less than|limit of|limited to|not exceed) (number of |of |is )?\d{1,7}"
            r" (input )?(tokens|characters)"
            r"|(maximum|max)\.?.{0,20} (sequence length|tokens|input length|input size)", "", "many"),
    # -- more inputs than a request may have --------------------------------------------------------------------------
    _phrase("too-many", rf"batch size {_N} > maximum allowed batch size {_N}",
            "batch size {} > maximum allowed batch size {}", "TEI; SiliconFlow, ApeRAG#716"),
    _phrase("too-many", rf"batch size is invalid.{{0,20}}not be larger than {_N}",
            "batch size should not be larger than {}", "DashScope, memobase#142, langchain4j#1140"),
    _phrase("too-many", rf"at most {_N} (requests|inputs|texts|items|documents|contents) can be in one batch",
            "at most {} can be in one batch", "Gemini"),
    _phrase("too-many", rf"total number of texts must be at most {_N}", "texts must be at most {}", "Cohere"),
    _phrase("too-many", rf"(list|array|input) should have at most {_N} items", "should have at most {} items",
            "FastAPI with pydantic 2, Infinity"),
    _phrase("too-many", rf"(maximum|max\.?) (batch size|number of inputs|input array size).{{0,20}}?{_N}",
            "maximum batch size {}", "many"),
    _phrase("too-many", r"too many (inputs|texts|items|documents|elements)|array_above_max_length|too_long.{0,20}items",
            "too many inputs", "OpenAI, Voyage, pydantic 2"),
    # -- NaN ----------------------------------------------------------------------------------------------------------
    _phrase("no-vector", r"unsupported value: \+?-?(nan|inf)", "unsupported value: NaN", "Ollama"),
    _phrase("no-vector", r"\bnan\b|not a number|out of range float", "NaN", "FastAPI, Ollama"),
    # -- the model ----------------------------------------------------------------------------------------------------
    _phrase("not-loaded", r"model (was|is|got|has been) unloaded|model unloaded", "Model was unloaded",
            "LM Studio 0.4.2, bug-tracker#1492"),
    _phrase("not-loaded", r"failed to load model.{0,400}operation cancell?ed",
            "Failed to load model: Operation canceled", "LM Studio 0.4.8, crush#2546"),
    _phrase("not-loaded", r"no models? (is |are |currently )?loaded|please load a model", "No models loaded",
            "LM Studio"),
    _phrase("not-loaded", r"model.{0,120}(is )?not (yet )?(loaded|ready)|(un)?loaded or crashed", "Model is not loaded",
            "LM Studio 0.3.34, lmstudio-python#171"),
    _phrase("not-loaded", r"loading model|model.{0,80}(is )?(currently |still )?(being )?load(ing|ed by)",
            "Loading model", "llama.cpp, run here; Hugging Face"),
    _phrase("crashed", r"runner (process )?(has |was )?(been )?(unexpectedly )?(terminated|stopped|crashed|exited)",
            "the runner has stopped", "Ollama 0.18.1, ollama#14983, #11421, #6552"),
    _phrase("crashed", r"model has crashed|model.{0,40} crashed", "The model has crashed",
            "LM Studio 0.3.34, lmstudio-python#171, bug-tracker#463"),
    _phrase("crashed",
            r"(engine|worker|backend|server) (process )?(is |has |was )?(dead|died|crashed|terminated|restarting)",
            "the engine's worker has died", "vLLM, TEI"),
    _phrase("no-embeddings", r"does not support embeddings?|not (an )?embedding( model)?\b|--embeddings?\b",
            "it does not support embeddings", "llama.cpp, Ollama; LM Studio 0.3.14, lms#205"),
    # -- the key ------------------------------------------------------------------------------------------------------
    _phrase("key", r"incorrect api key|api key not valid|invalid api[ _-]?key|api_key_invalid", "API key not valid",
            "OpenAI, Gemini, Voyage, Jina"),
    _phrase("key", r"\bapi[ _-]?key\b|invalid.{0,10}credential|bearer token", "", "LiteLLM, Mistral, NIM"),
    # -- one input ----------------------------------------------------------------------------------------------------
    _phrase("one-input", r"content.?(filter|policy|management)|safety|inappropriate", "content filter",
            "Azure OpenAI, DashScope, Gemini"),
    _phrase("one-input",
            r"\binputs?\b.{0,60}\b(invalid|must|should|cannot|empty|blank|not allowed|refused|rejected|not supported)"
            r"|requests?\[\d{1,6}\]\.content|empty (string|text|input)", "an input is invalid",
            "OpenAI, vLLM, TEI, Gemini"),
    # -- base64 -------------------------------------------------------------------------------------------------------
    _phrase("format", r"encoding_?format|base64", "encoding_format", "many"),
    # -- a quota ------------------------------------------------------------------------------------------------------
    _phrase("quota", r"insufficient_quota|billing_(not_active|hard_limit_reached)", "insufficient_quota", "OpenAI"),
    _phrase("quota", r"exceeded your current quota|(hard|spending) limit has been reached",
            "exceeded your current quota", "OpenAI, Azure OpenAI"),
    _phrase("quota", r"(insufficient|not enough|negative|no)( account| remaining)? (balance|credits?|funds)"
            r"|(balance|credits?)( is| are)? (insufficient|too low|exhausted|empty|not enough|0\b)|balance:? ?0\b"
            r"|requires more credits|out of credits|insufficient_(balance|credits?|funds)|payment required",
            "insufficient balance", "OpenRouter, SiliconFlow, DeepSeek, Jina, Voyage"),
    _phrase("quota", r"arrearage|account is in good standing|overdue", "the account is in arrears", "DashScope"),
    _phrase("quota", r"quota exceeded.{0,200}limit: 0\b", "quota exceeded, limit: 0", "Gemini"),
    # -- shown, and nothing decided by it -----------------------------------------------------------------------------
    _phrase("busy", r"rate.?limit|too many requests|requests per (second|minute)", "rate limit", "many"),
    _phrase("speaks-tls", PLAIN_HTTP, "", "nginx, Apache httpd, Go's net/http"),
    _phrase("told", r"overloaded", "overloaded", "TEI, OpenRouter"),
    _phrase("told", r"out of memory", "out of memory", "vLLM, TEI, llama.cpp"),
    _phrase("told", r"try pulling it first", "try pulling it first", "Ollama"),
    _phrase("told", r"\bmodel\b.{0,200}(not found|does not exist|not exist)", "model not found",
            "OpenAI, vLLM, Ollama, LM Studio"),
    _phrase("told", r"internal server error", "Internal Server Error", "many"),
    _phrase("told", r"bad gateway", "Bad Gateway", "nginx, Cloudflare"),
    _phrase("told",
            r"(unknown|unexpected|extra).{0,10} (field|parameter|argument|inputs?)|extra_forbidden|not permitted",
            "unknown field", "Mistral, pydantic 2"),
    _phrase("told", r"input_type", "input_type", "NVIDIA NIM, Cohere, Voyage"),
    _phrase("told", r"dimension", "dimensions", "OpenAI, vLLM, Jina"),
    _phrase("told", r"method not allowed", "Method Not Allowed", "many"),
    _phrase("told", r"\bnot found\b", "not found", "many"),
)
# fmt: on

# What stands for a status in an error that came with 200, or in words beside one (OpenAI, Google, OpenRouter).
STATUS_WORDS = {
    "rate_limit_exceeded": 429,
    "rate_limit_error": 429,
    "resource_exhausted": 429,
    "too_many_requests": 429,
    "insufficient_quota": 429,
    "overloaded_error": 503,
    "unavailable": 503,
    "unavailable_error": 503,
    "server_error": 500,
    "internal": 500,
    "internal_error": 500,
    "internal_server_error": 500,
    "api_error": 500,
    "invalid_api_key": 401,
    "authentication_error": 401,
    "unauthenticated": 401,
    "permission_denied": 403,
    "not_found_error": 404,
    "model_not_found": 404,
}
