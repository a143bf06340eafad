"""``Retry-After`` and its kin read as a hint in seconds, or as nothing. Pure.

An engine's hint holds back a whole lane, so only the two forms that the header may have are believed.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

_MOST_DIGITS = 10  # three hundred years; what has more is not meant
_DAY = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_TIME = r"\d\d:\d\d:\d\d"
# The three forms of RFC 9110, section 5.6.7. email.utils alone would read a date out of much prose.
_HTTP_DATE = re.compile(
    rf"{_DAY}, \d\d {_MONTH} \d{{4}} {_TIME} GMT"
    rf"|{_DAY}[a-z]*day, \d\d-{_MONTH}-\d\d {_TIME} GMT"
    rf"|{_DAY} {_MONTH} [\d ]\d {_TIME} \d{{4}}",
    re.ASCII,
)
# A protobuf duration as JSON, which is how Google's ``RetryInfo`` has it; it may have a fraction.
_DURATION = re.compile(r"(\d{1,10}(?:\.\d{1,9})?)s", re.ASCII)


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
