"""When a consensus is one, who still takes part in it, and how it ends. Pure, as tables."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, Literal

import attrs

from embedkit.ask.kinds import Kind
from embedkit.ask.verdicts import Verdict

Confidence = Literal["high", "medium", "low"]
Ending = Literal["converged", "max-rounds", "max-wall", "all-providers-circuit-broken", "arbiter-failed"]
Word = Verdict | Literal["no-verdict", "failed"]

FAILURES_TO_DROP: Final = 2

_ACCEPTED = re.compile(r"[\s*_>-]{0,8}ACCEPTED[\s*_]{0,4}:[\s*_]*(?P<issue>\S.*)", re.I)
_CRITICAL = re.compile(r"[\s*_>-]{0,8}CRITICAL[\s*_]{0,4}:[\s*_]*(?P<issue>\S.*)", re.I)
_NOTHING = re.compile(r"(?:none|nothing|no|n/?a|-)\W*", re.I)


def confidence_of(number: int) -> Confidence:
    """How much a consensus of round ``number`` (from 1) is worth: the sooner, the more."""
    if number <= 1:
        return "high"
    return "medium" if number <= 3 else "low"


def critical_issues(reply: str) -> tuple[str, ...]:
    """What a peer calls critical: its lines ``CRITICAL: ...``."""
    return _listed(reply, _CRITICAL)


def accepted_issues(reply: str) -> tuple[str, ...]:
    """Which critical issues the arbiter accepts: its lines ``ACCEPTED: ...``."""
    return _listed(reply, _ACCEPTED)


def converges(peers: Mapping[str, Word], arbiter: Word, accepted: Sequence[str]) -> bool:
    """Whether a round is a consensus.

    Args:
        peers: What each live peer said in it, by alias.
        arbiter: What the arbiter said last.
        accepted: The critical issues that it accepts.
    """
    return bool(peers) and set(peers.values()) == {"APPROVE"} and arbiter == "APPROVE" and not accepted


@attrs.define
class Standing:
    """Who still takes part.

    Attributes:
        live: Aliases of the peers that are asked, in panel order.
        dropped: Those that are asked no more, each with the kind of its last failure.
    """

    live: list[str]
    dropped: dict[str, Kind] = attrs.field(factory=dict)
    _streaks: dict[str, int] = attrs.field(factory=dict)

    def note(self, alias: str, failed: Kind | None) -> None:
        """Count what a peer came to in a round: any answer ends its streak, the second failure in a row drops it."""
        if failed is None:
            self._streaks.pop(alias, None)
            return
        self._streaks[alias] = self._streaks.get(alias, 0) + 1
        if self._streaks[alias] >= FAILURES_TO_DROP and alias in self.live:
            self.live.remove(alias)
            self.dropped[alias] = failed


def _listed(reply: str, pattern: re.Pattern[str]) -> tuple[str, ...]:
    found = (pattern.match(line[:2_000]) for line in reply.splitlines())
    issues = (match["issue"].strip(" *_") for match in found if match)
    return tuple(issue for issue in issues if issue and not _NOTHING.fullmatch(issue))
