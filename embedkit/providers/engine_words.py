"""What an engine said about a failure: its reason found in its reply, and what of it is known. Pure.

An engine may quote anything: the inputs, as they are, as a repr, a JSON string, entities or tokens, and the key. So
none of its own text is shown or kept; only phrases of ``engine_table``. The inputs are taken out before any is looked
for, or a text about API keys would be an authentication failure.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence

import attrs

from embedkit.providers.engine_table import PHRASES, PLAIN_HTTP, Meaning, Phrase
from embedkit.providers.retry_after import retry_info_seconds
from embedkit.providers.secrets import without_secrets

_READ = 1_000
_SHOWN = 2  # phrases
_LOOKED_AT = 1 << 17  # characters of the inputs that are compared; what is quoted of others is evidence at worst
_SHORT, _MOST_SHORT = 200, 256
_ECHO = 12  # letters and digits in a row, aligned, that two texts do not share by chance
_SHORTEST = 4
_LARGEST_DIGITS = 7
_WEB_PAGE = ("<!doctype", "<html", "<?xml", "<head", "<body")
_ESCAPED = re.compile(r"\\u([0-9a-fA-F]{4})|\\x([0-9a-fA-F]{2})|\\([nrtfvb])")
_QUOTED = "'\"`"
_PLAIN_HTTP = re.compile(PLAIN_HTTP, re.IGNORECASE)
_LETTER = re.compile(r"[^\W_]")
_NO_LETTERS = re.compile(r"[\W_]+")


@attrs.frozen
class EngineWords:
    """An engine's reason.

    Attributes:
        shown: What may stand in a message: phrases of the table, empty if none was found.
        raw: The reason itself in one line, less the key; for whoever asks to see it, and never kept.
        evidence: For patterns: codes and reason, bounded, without the inputs that it repeats. Not to be shown.
        codes: What stands in ``code``, ``type`` and ``status``, as text.
        phrases: The phrases that were found, in the table's order.
        retry_info: Seconds that Google's ``RetryInfo`` asks to wait, where there is one.
        names_input: Whether the engine says that its ``input`` parameter is at fault.
    """

    shown: str
    raw: str = attrs.field(repr=False)
    evidence: str = attrs.field(repr=False)
    codes: tuple[str, ...] = attrs.field(repr=False)
    phrases: tuple[Phrase, ...] = attrs.field(repr=False)
    retry_info: float | None
    names_input: bool

    def means(self, meaning: Meaning) -> bool:
        """Whether a phrase of that meaning was found."""
        return any(phrase.means == meaning for phrase in self.phrases)

    def number_of(self, meaning: Meaning) -> int | None:
        """The last number in the phrase of that meaning, which is the bound; ``None`` without one."""
        for phrase in self.phrases:
            if phrase.means == meaning and (numbers := _numbers(phrase, self.evidence)):
                return int(numbers[-1])
        return None


def words_of(document: object, inputs: Sequence[str], secrets: Sequence[str] = ()) -> EngineWords:
    """The reason that ``document``, a parsed reply or its text, gives.

    Args:
        document: What the engine answered.
        inputs: The texts that were sent.
        secrets: The keys that were sent, which an engine may quote too.
    """
    error = _error_of(document)
    raw = _one_line(without_secrets(_reason_of(error)[: 8 * _READ], secrets))[:_READ]
    codes = tuple(_one_line(without_secrets(code[:200], secrets))[:80] for code in _codes_of(error))
    evidence = " ".join([*codes, _without_inputs(_unescaped(raw), inputs)])
    phrases = tuple(phrase for phrase in PHRASES if phrase.pattern.search(evidence))
    return EngineWords(
        shown=_shown(phrases, evidence, inputs),
        raw=raw,
        evidence=evidence,
        codes=codes,
        phrases=phrases,
        retry_info=retry_info_seconds(error),
        names_input=isinstance(error, dict) and str(error.get("param") or "").lstrip("$.").startswith("input"),
    )


def _error_of(document: object) -> object:
    if isinstance(document, list) and document:
        document = document[0]  # Google's OpenAI surface wraps its error in a list
    if isinstance(document, dict):
        return document.get("error") or document.get("errors") or document
    return document


def _reason_of(error: object, depth: int = 4) -> str:
    if depth == 0:
        return ""
    if isinstance(error, str):
        return _of_page(error[: 4 * _READ]) if error.lstrip()[:10].lower().startswith(_WEB_PAGE) else error
    if isinstance(error, dict):
        for key in ("message", "error", "detail", "msg", "reason", "error_msg", "error_message", "title"):
            if error.get(key) and (reason := _reason_of(error[key], depth - 1)):
                return reason
    if isinstance(error, list):
        # FastAPI: one entry for each field, with its place in `loc`.
        return "; ".join(_entry(item, depth - 1) for item in error[:3])
    return ""


def _of_page(page: str) -> str:
    """What a web page says: nothing, but for the one thing that a server says to whoever speaks to it without TLS."""
    found = _PLAIN_HTTP.search(page)
    return "" if found is None else found[0]


def _entry(item: object, depth: int) -> str:
    if not isinstance(item, dict):
        return _reason_of(item, depth)
    place = item.get("loc")
    where = ".".join(str(part)[:80] for part in place[:8] if part != "body") if isinstance(place, list) else ""
    return f"{where} {_reason_of(item, depth)}".strip()


def _codes_of(error: object) -> Iterator[str]:
    if isinstance(error, list) and error:
        error = error[0]
    if isinstance(error, dict):
        for key in ("code", "status", "type", "error_type", "param", "error_code"):
            value = error.get(key)
            if isinstance(value, str):
                yield value
            elif isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**_LARGEST_DIGITS:
                yield str(value)


def _one_line(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def _unescaped(reason: str) -> str:
    """``reason`` with what a repr, a JSON string or entities have made of its characters undone."""
    text = html.unescape(reason)
    if "\\" in text:
        text = _ESCAPED.sub(lambda found: chr(int(found[1] or found[2] or "20", 16)), text).replace("\\", "")
    return _one_line(text)


def _without_inputs(reason: str, inputs: Sequence[str]) -> str:
    """``reason`` less what it took from the inputs: short ones in quotes, of long ones every piece.

    Only letters and digits are compared, so that neither quotes between tokens nor spacing nor case hide a piece.
    """
    looked_at, needles = 0, []
    for text in inputs:
        needles.append(text[: max(_LOOKED_AT - looked_at, 0)])
        looked_at += len(needles[-1])
    for short in [needle for needle in needles if _SHORTEST <= len(needle) <= _SHORT][:_MOST_SHORT]:
        needle = _one_line(short)
        if needle in reason:
            reason = re.sub(rf"([{_QUOTED}]){re.escape(needle)}(?=[{_QUOTED}])", r"\1", reason)
    letters, places = _letters(reason)
    taken = bytearray(len(letters))
    for start, stop in _echoes(letters, [_letters_of(needle) for needle in needles]):
        taken[start:stop] = b"\1" * (stop - start)
    gone = {place for place, is_taken in zip(places, taken, strict=True) if is_taken}
    return "".join(c for place, c in enumerate(reason) if place not in gone)


def _echoes(letters: str, needles: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Where ``letters`` repeats at least ``2 * _ECHO - 1`` letters of a needle, or the whole of a shorter one."""
    pieces: dict[str, tuple[int, int]] = {}
    for number, needle in enumerate(needles):
        if _ECHO <= len(needle) < 2 * _ECHO:
            at = letters.find(needle)
            if at >= 0:
                yield at, at + len(needle)
        for start in range(0, len(needle) - _ECHO + 1, _ECHO):
            pieces.setdefault(needle[start : start + _ECHO], (number, start))
    at = 0
    while at <= len(letters) - _ECHO:
        found = pieces.get(letters[at : at + _ECHO])
        if found is None:
            at += 1
            continue
        start, stop = _widened(letters, at, needles[found[0]], found[1])
        if stop - start >= 2 * _ECHO - 1:
            yield start, stop
        at = max(stop, at + 1)


def _widened(letters: str, at: int, needle: str, there: int) -> tuple[int, int]:
    start, stop, back = at, at, there
    while start > 0 and back > 0 and letters[start - 1] == needle[back - 1]:
        start, back = start - 1, back - 1
    while stop < len(letters) and there < len(needle) and letters[stop] == needle[there]:
        stop, there = stop + 1, there + 1
    return start, stop


def _letters(text: str) -> tuple[str, list[int]]:
    """The letters and digits of ``text`` in lower case, and where each stood."""
    places = [found.start() for found in _LETTER.finditer(text)]
    return _letters_of("".join(text[place] for place in places)), places


def _letters_of(text: str) -> str:
    """The letters and digits of ``text`` in lower case, one for one: the only letter that grows is made another."""
    return _NO_LETTERS.sub("", text).replace("\u0130", "i").lower()


def _numbers(phrase: Phrase, evidence: str) -> list[str]:
    found = phrase.pattern.search(evidence)
    return [] if found is None else [group for group in found.groups() if group and group.isascii() and group.isdigit()]


def _shown(phrases: Sequence[Phrase], evidence: str, inputs: Sequence[str]) -> str:
    said: list[str] = []
    for phrase in phrases:
        if not phrase.says:
            continue
        # A number that stands in an input may have come from there.
        numbers = ["…" if any(n in text for text in inputs) else n for n in _numbers(phrase, evidence)]
        holes = phrase.says.count("{}")
        if holes <= len(numbers):
            said.append(phrase.says.format(*numbers[-holes:] if holes else ()))
    return "; ".join(list(dict.fromkeys(said))[:_SHOWN])
