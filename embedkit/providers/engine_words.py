"""What an engine said about a failure: its words found in its reply, less what it was asked. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import attrs

from embedkit.providers.retry_after import retry_info_seconds

_SHOWN = 200
_READ = 1_000
_ECHO = 24  # characters in a row that two texts do not share by chance
_SHORTEST = 4  # an input shorter than this gives nothing away
_SECRET = re.compile(r"\b(?:[spr]k-|hf_|AIza)[\w*.\-]{4,}|\bBearer \S+")


@attrs.frozen
class EngineWords:
    """An engine's reason.

    Attributes:
        shown: For messages: one line, at most 200 characters, empty if it repeats an input or there is none.
        evidence: For patterns: codes and reason, bounded, without the inputs that it repeats. Not to be
            shown.
        codes: What stands in ``code``, ``type`` and ``status``, as text.
        retry_info: Seconds that Google's ``RetryInfo`` asks to wait, where there is one.
        names_input: Whether the engine says that its ``input`` parameter is at fault.
    """

    shown: str
    evidence: str = attrs.field(repr=False)
    codes: tuple[str, ...]
    retry_info: float | None
    names_input: bool


def words_of(document: object, inputs: Sequence[str], key: str | None = None) -> EngineWords:
    """The reason that ``document``, a parsed reply or its text, gives.

    Args:
        document: What the engine answered.
        inputs: The texts that were sent.
        key: The key that was sent, which an engine may quote too.
    """
    error = _error_of(document)
    reason = _without_key(_one_line(_reason_of(error)[: 8 * _READ])[:_READ], key)
    codes = tuple(_one_line(code)[:80] for code in _codes_of(error))
    needles = [needle for needle in map(_one_line, inputs) if len(needle) >= _SHORTEST]
    evidence = _without_inputs(reason, needles)
    repeats = evidence != reason or any(needle in reason for needle in needles)
    return EngineWords(
        shown="" if repeats else _bounded(reason),
        evidence=" ".join([*codes, evidence]),
        codes=codes,
        retry_info=retry_info_seconds(error),
        names_input=isinstance(error, dict) and str(error.get("param") or "").lstrip("$.").startswith("input"),
    )


def _error_of(document: object) -> object:
    if isinstance(document, list) and document:
        document = document[0]  # Google's OpenAI surface wraps its error in a list
    if isinstance(document, dict):
        return document.get("error") or document
    return document


def _reason_of(error: object) -> str:
    if isinstance(error, str):
        return "" if error.lstrip()[:1] == "<" else error  # HTML says nothing
    if isinstance(error, dict):
        for key in ("message", "error", "detail", "msg", "reason"):
            if error.get(key):
                return _reason_of(error[key])
    if isinstance(error, list):
        # FastAPI: one entry for each field, with its place in `loc`.
        return "; ".join(_entry(item) for item in error[:3])
    return ""


def _entry(item: object) -> str:
    if not isinstance(item, dict):
        return _reason_of(item)
    place = item.get("loc")
    where = ".".join(str(part) for part in place if part != "body") if isinstance(place, list) else ""
    return f"{where} {_reason_of(item)}".strip()


def _codes_of(error: object) -> Iterator[str]:
    if isinstance(error, dict):
        for key in ("code", "status", "type", "error_type", "param"):
            value = error.get(key)
            if isinstance(value, str | int) and not isinstance(value, bool):
                yield str(value)


def _one_line(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def _bounded(text: str) -> str:
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def _without_key(reason: str, key: str | None) -> str:
    return _SECRET.sub("(key)", reason.replace(key, "(key)") if key else reason)


def _without_inputs(reason: str, needles: Sequence[str]) -> str:
    """``reason`` less what it took from the inputs: short ones in quotes, of long ones every piece."""
    for needle in needles:
        if len(needle) < _ECHO and needle in reason:
            reason = re.sub(rf"(['\"`]){re.escape(needle)}(?=['\"`])", r"\1", reason)
    haystack = "\n".join(needle for needle in needles if len(needle) >= _ECHO).lower()
    lowered = reason.lower()
    if len(lowered) != len(reason):
        lowered = reason  # a few letters grow when lowered, and positions would no longer agree
    taken = bytearray(len(reason))
    for start in range(len(reason) - _ECHO + 1):
        if lowered[start : start + _ECHO] in haystack:
            taken[start : start + _ECHO] = b"\1" * _ECHO
    return "".join(c for c, is_taken in zip(reason, taken, strict=True) if not is_taken)
