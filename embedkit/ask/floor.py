"""Whether a text is an answer, or only the announcement of one. Pure.

The same rule on every path: a program that ended in time and one that was still being drained are judged alike, so that
validity does not depend on timing.
"""

from __future__ import annotations

import re

from embedkit.settings.kinds import AnswerFloor

DEFAULT_SHORTEST = 80

# The last is one phrase, "First, I": "I" alone opens many a short answer ("I approve").
_ANNOUNCES = re.compile(
    r"(?:i will|i['\u2019]ll|i am going to|i['\u2019]m going to|let me|first,? i)(?!\w)", re.IGNORECASE
)
_LEADING = " \t\r\n\"'`*_>#-\u201c\u2018"


def is_answer(text: str, floor: AnswerFloor, shortest: int = DEFAULT_SHORTEST) -> bool:
    """Whether ``text`` counts as an answer.

    Args:
        text: What the model said.
        floor: ``length``: what is shorter than ``shortest`` is none. ``intent``: what is shorter and opens with an
            announcement is none, so that a correct "ok" passes. ``off``: whatever is not blank is one.
        shortest: In characters, blanks around the text not counted; 0 asks for no length.
    """
    stripped = text.strip()
    if not stripped:
        return False
    if floor == "off" or len(stripped) >= shortest:
        return True
    return floor == "intent" and not announces(stripped)


def announces(text: str) -> bool:
    """Whether ``text`` opens with what is about to be done."""
    return _ANNOUNCES.match(text.lstrip(_LEADING)) is not None
