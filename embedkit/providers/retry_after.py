"""``Retry-After`` and its kin read as a hint in seconds, or as nothing. Pure.

An engine's hint holds back a whole lane, so only the forms that each header may have are believed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

_MOST_DIGITS = 10  # three hundred years; what has more is not meant
_DAY = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_TIME = r"\d\d:\d\d:\d\d"
# The three forms of RFC 9110, section 5.6.7. email.utils alone would read a date out of much prose.
_HTTP_DATE = re.compile(
    rf"{_DAY}, \d\d {_MONTH} \d{{4}} {_TIME} GMT"
    rf"|{_DAY}[a-z]{{0,6}}day, \d\d-{_MONTH}-\d\d {_TIME} GMT"
    rf"|{_DAY} {_MONTH} [\d ]\d {_TIME} \d{{4}}",
    re.ASCII,
)
# A protobuf duration as JSON, which is how Google's ``RetryInfo`` has it; it may have a fraction.
_DURATION = re.compile(r"(\d{1,10}(?:\.\d{1,9})?)s", re.ASCII)
# Go's durations, as OpenAI's and Groq's headers have them: ``6m0s``, ``20ms``, ``7.66s``.
_GO_DURATION = re.compile(
    r"(?:(\d{1,5})h)?(?:(\d{1,5})m(?!s))?(?:(\d{1,7}(?:\.\d{1,9})?)s)?(?:(\d{1,9}(?:\.\d{1,9})?)ms)?", re.ASCII
)
_ISO_DATE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?(?:Z|[+-]\d\d:\d\d)", re.ASCII)
_RESET = re.compile(r"(?:x-)?ratelimit-(?:reset(?:-(?P<after>[\w-]{1,100}))?|(?P<before>[\w-]{1,100})-reset)")
# What is larger is no number of seconds but an instant: in seconds since 1970, or in milliseconds.
_EPOCH_SECONDS = 1e9
_EPOCH_MILLISECONDS = 1e12


def hint_seconds(headers: Mapping[str, str], now: datetime, retry_info: float | None = None) -> float | None:
    """Seconds to wait, by the first of these that says so in a form that is believed.

    ``retry-after-ms`` (Azure OpenAI), ``retry-after``, Google's ``RetryInfo``, and the ``x-ratelimit-reset-*`` of the
    limits that are used up.

    Args:
        headers: Names in lower case.
        now: The wall clock, with its zone.
        retry_info: What stands in the body, where something does.
    """
    milliseconds = headers.get("retry-after-ms", "").strip()
    if milliseconds.isascii() and milliseconds.isdigit() and len(milliseconds) <= _MOST_DIGITS:
        return int(milliseconds) / 1000
    seconds = retry_after_seconds(headers.get("retry-after"), now)
    if seconds is None:
        seconds = retry_info
    return _reset_seconds(headers, now) if seconds is None else seconds


def _reset_seconds(headers: Mapping[str, str], now: datetime) -> float | None:
    """When the limit that was met is no more: the latest reset among those of which nothing remains.

    Where no header says what remains, any may be the one.
    """
    resets = list(_resets(headers, now))
    used_up = [seconds for seconds, remaining in resets if remaining == "0"]
    unknown = [seconds for seconds, remaining in resets if remaining is None]
    return max(used_up or unknown or [seconds for seconds, _ in resets], default=None)


def _resets(headers: Mapping[str, str], now: datetime) -> Iterator[tuple[float, str | None]]:
    for name, value in headers.items():
        found = _RESET.fullmatch(name)
        if found is None or (seconds := _reset_of(value.strip(), now)) is None:
            continue
        yield seconds, headers.get(name.replace("reset", "remaining"))


def _reset_of(value: str, now: datetime) -> float | None:
    if value.isascii() and value.isdigit():
        number = float(value) if len(value) <= 13 else float("inf")
        if number < _EPOCH_SECONDS:
            return number
        since = number / 1000 if number >= _EPOCH_MILLISECONDS else number
        return max(since - now.timestamp(), 0.0) if number != float("inf") else None
    if value and (found := _GO_DURATION.fullmatch(value)):
        hours, minutes, seconds, thousandths = (float(part or 0) for part in found.groups())
        return 3600 * hours + 60 * minutes + seconds + thousandths / 1000
    if _ISO_DATE.fullmatch(value):
        try:
            return max((datetime.fromisoformat(value) - now).total_seconds(), 0.0)
        except ValueError:
            return None
    return None


def retry_after_seconds(value: str | None, now: datetime) -> float | None:
    """Seconds to wait: all digits are seconds; an HTTP date is its difference to ``now``, 0 if it is past.

    Args:
        value: The header's value, ``None`` where there is no header.
        now: The wall clock, with its zone.

    Returns:
        ``None`` for everything else: overflow, negative, fraction, blank, prose.
    """
    text = (value or "").strip(" \t")
    if text.isascii() and text.isdigit():
        return float(text) if len(text) <= _MOST_DIGITS else None
    if not _HTTP_DATE.fullmatch(text):
        return None
    try:
        then = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    if then.tzinfo is None:
        then = then.replace(tzinfo=UTC)
    return max((then - now).total_seconds(), 0.0)


def retry_info_seconds(error: object) -> float | None:
    """Seconds to wait by the ``RetryInfo`` among the ``details`` of an error of Google's; ``None`` without one."""
    details = error.get("details") if isinstance(error, dict) else None
    for detail in details if isinstance(details, list) else []:
        if isinstance(detail, dict) and str(detail.get("@type")).endswith("google.rpc.RetryInfo"):
            found = _DURATION.fullmatch(str(detail.get("retryDelay")))
            return float(found[1]) if found else None
    return None
