"""Files for grok, in the words of xAI's Files API and of its Responses API, which takes them. Pure.

=======  ================================================  ====================================================
step     request                                           reply
=======  ================================================  ====================================================
upload   ``POST {base}/files``, multipart                  ``id``
ask      ``POST {base}/responses``                         ``output[].content[].text``, ``status``, ``usage``
remove   ``DELETE {base}/files/{id}``
=======  ================================================  ====================================================

``expires_after`` has to stand before the file. It is the shortest that xAI takes: what is not removed, since this
process was killed, goes by itself.
"""

from __future__ import annotations

import mimetypes
from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

from embedkit.ask.chat_wire import name_of, usage_of
from embedkit.ask.failing import AskFailed, ask_failed
from embedkit.ask.results import Said
from embedkit.errors import ContentRefused, ModelNotResident, ProviderFailure, ResponseInvalid
from embedkit.providers.exchange import Reply
from embedkit.providers.failures import Asked, failure_inside, failure_of
from embedkit.providers.json_body import Bound, dump_json, load_json

LARGEST_FILE: Final = 48_000_000
"""Bytes. xAI's pages say 48 MB in one place and 50 in another."""

EXPIRES_SECONDS: Final = 3_600
_BOUND = Bound(size=16 << 20, containers=200_000, commas=2_000_000)
_LONGEST_ID = 200
_ID_SIGNS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")


@attrs.frozen
class Upload:
    """A request that uploads a file."""

    content_type: str
    body: bytes = attrs.field(repr=False)


def write_upload(name: str, content: bytes, boundary: str) -> Upload:
    """The request for one file.

    Args:
        name: Of the file; the engine is told it.
        content: All of it.
        boundary: A text that is nowhere in ``content``.
    """
    shown = "".join(sign for sign in name if sign.isprintable()).replace("\\", "_").replace('"', "_")
    kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
    parts = [
        f'name="expires_after"\r\n\r\n{EXPIRES_SECONDS}\r\n',
        'name="purpose"\r\n\r\nassistants\r\n',
        f'name="file"; filename="{shown}"\r\nContent-Type: {kind}\r\n\r\n',
    ]
    head = "".join(f"--{boundary}\r\nContent-Disposition: form-data; {part}" for part in parts)
    body = b"".join((head.encode("utf-8", "replace"), content, f"\r\n--{boundary}--\r\n".encode()))
    return Upload(f"multipart/form-data; boundary={boundary}", body)


def read_upload(reply: Reply, name: str, asked: Asked) -> str:
    """The id that an uploaded file has.

    Raises:
        AskFailed: ``file-too-large``; ``file-upload``: the engine does not take it.
        ProviderError: The engine is busy, or refuses the key, or anything that is not about the file.
    """
    if not 200 <= reply.status < 300:
        error = failure_of(reply, asked)
        if reply.status == 413:
            raise AskFailed("file-too-large", f"{error}: {name}", code="FILE_TOO_LARGE", status=413)
        if isinstance(error, ContentRefused | ModelNotResident) or type(error) is ProviderFailure:
            raise AskFailed("file-upload", f"{error}: {name} was not taken", code="FILE_UPLOAD", status=reply.status)
        raise error
    document = _document(reply, asked)
    found = document.get("id")
    if not isinstance(found, str) or not 0 < len(found) <= _LONGEST_ID or not set(found) <= _ID_SIGNS:
        raise AskFailed("file-upload", f"engine {asked.peer}: {name} was given no id", code="FILE_UPLOAD")
    return found


def write_question(model: str | None, text: str, ids: Sequence[str], fields: Mapping[str, object]) -> bytes:
    """The body of a request that asks about uploaded files."""
    content = [{"type": "input_text", "text": text}, *({"type": "input_file", "file_id": one} for one in ids)]
    document = {**fields, "model": model, "input": [{"role": "user", "content": content}], "stream": False}
    return dump_json(document)


def read_answer(reply: Reply, asked: Asked) -> Said:
    """What the model said; it may be blank.

    Raises:
        ProviderError: The one that the reply stands for.
        AskFailed: ``truncated``.
    """
    if not 200 <= reply.status < 300:
        raise failure_of(reply, asked)
    document = _document(reply, asked)
    if document.get("error"):
        raise failure_inside(document, reply, asked)
    output = document.get("output")
    if not isinstance(output, list):
        raise ResponseInvalid(f"engine {asked.peer}: the reply holds no output of a model", status=reply.status)
    text = "".join(_texts(output))
    if not text.strip() and document.get("status") == "incomplete":
        message = f"engine {asked.peer}: the limit on tokens was reached before any text; raise it"
        raise AskFailed("truncated", message, code="ANSWER_TRUNCATED", status=reply.status)
    usage = document.get("usage")
    counts = usage if isinstance(usage, dict) else {}
    return Said(
        text,
        name_of(document.get("model")),
        usage_of(counts.get("input_tokens"), counts.get("output_tokens")),
        thread=name_of(document.get("id")),
    )


def _texts(output: list[Any]) -> list[str]:
    """The words of its messages; what tools and reasoning say are none."""
    messages = [item for item in output if isinstance(item, dict) and item.get("type", "message") == "message"]
    contents = [item["content"] for item in messages if isinstance(item.get("content"), list)]
    parts = [part for content in contents for part in content if isinstance(part, dict)]
    return [part["text"] for part in parts if isinstance(part.get("text"), str)]


def _document(reply: Reply, asked: Asked) -> dict[str, Any]:
    try:
        document = load_json(reply.body, _BOUND)
    except ResponseInvalid as error:
        raise ask_failed(ResponseInvalid(f"engine {asked.peer}: {error}", status=reply.status)) from None
    if not isinstance(document, dict):
        raise ResponseInvalid(f"engine {asked.peer}: the reply is no JSON object", status=reply.status)
    return document
