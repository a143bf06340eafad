"""What the law suite found: a verdict for each play, and a report of a page."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from embedkit.testing.laws.scenario import TITLES
from embedkit.testing.trace import Finding

_SHOWN = 12


@attrs.frozen
class LawVerdict:
    """One scenario under one schedule.

    What a lane does and what it writes down are judged apart. The first finding of each kind counts; it may be about
    another law than the scenario's own.

    Attributes:
        law: 1 to 7: of the scenario.
        scenario: Its name.
        seed: Of the schedule.
        does: What the lane did wrong, if it did.
        writes: What it wrote down wrong (totals, clocks, attempts, attribution, ledger rows), if it did.
        trace: The interleaving, a line an event.
        was_given_up: The play did not end by itself, or not even began.
    """

    law: int
    scenario: str
    seed: int
    does: Finding | None
    writes: Finding | None
    trace: str = attrs.field(repr=False)
    was_given_up: bool = False

    @property
    def is_kept(self) -> bool:
        """Whether the lane kept every law here, in deed and in writing."""
        return self.does is None and self.writes is None

    @property
    def laws(self) -> frozenset[int]:
        """The laws that were broken here, in deed or in writing."""
        return frozenset(finding.law for finding in (self.does, self.writes) if finding is not None)

    def __str__(self) -> str:
        head = f"law {self.law} ({TITLES[self.law]}), {self.scenario!r}, seed {self.seed}:"
        return f"{head} kept" if self.is_kept else "\n".join([head, *self._lines()])

    def _lines(self) -> Iterable[str]:
        for finding, kind in ((self.does, ""), (self.writes, "written down: ")):
            if finding is not None:
                of_law = "" if finding.law == self.law else f"law {finding.law}: "
                yield f"  {of_law}{kind}{finding.what}"


@attrs.frozen
class LawReport:
    """What ``judge_lane`` found. ``str(report)`` is a page.

    Attributes:
        verdicts: One for each scenario and seed that was played.
        not_judged: What was not judged, and why, in words.
    """

    verdicts: tuple[LawVerdict, ...]
    not_judged: tuple[str, ...] = ()

    @property
    def is_kept(self) -> bool:
        """Whether every law that was judged was kept, in deed and in writing."""
        return not self.failures

    @property
    def failures(self) -> tuple[LawVerdict, ...]:
        """The verdicts that show a broken law, in deed or in writing."""
        return tuple(verdict for verdict in self.verdicts if not verdict.is_kept)

    @property
    def broken_laws(self) -> frozenset[int]:
        """The laws that the lane broke by what it did."""
        return frozenset(verdict.does.law for verdict in self.verdicts if verdict.does is not None)

    @property
    def miswritten_laws(self) -> frozenset[int]:
        """The laws that it broke by what it wrote down."""
        return frozenset(verdict.writes.law for verdict in self.verdicts if verdict.writes is not None)

    def trace(self, scenario: str, seed: int | None = None) -> str:
        """The interleaving of a scenario: of the first seed that failed, if none is named.

        Raises:
            KeyError: It was not played.
        """
        played = [v for v in self.verdicts if v.scenario == scenario and seed in (None, v.seed)]
        if not played:
            raise KeyError(f"{scenario!r} was not played with seed {seed}")
        return min(played, key=lambda verdict: verdict.is_kept).trace

    def render(self, *, show_traces: bool = False) -> str:
        """A line a law, what was not judged, and the first failure of each scenario that failed."""
        first: dict[str, LawVerdict] = {}
        for verdict in self.failures:
            first.setdefault(verdict.scenario, verdict)
        shown = list(first.values())[: len(first) if show_traces else _SHOWN]
        texts = [f"{verdict}\n{verdict.trace}" if show_traces else str(verdict) for verdict in shown]
        if len(first) > len(shown):
            texts.append(f"and {len(first) - len(shown)} scenarios more")
        laws = sorted({verdict.law for verdict in self.verdicts} | self.broken_laws | self.miswritten_laws)
        head = [*map(self._line, laws), *(f"not judged: {what}" for what in self.not_judged)]
        return "\n\n".join(["\n".join(head), *texts])

    def __str__(self) -> str:
        return self.render()

    def _line(self, law: int) -> str:
        scenarios = {verdict.scenario for verdict in self.verdicts if verdict.law == law}
        did = {v.scenario for v in self.verdicts if v.does is not None and v.does.law == law}
        wrote = {v.scenario for v in self.verdicts if v.writes is not None and v.writes.law == law}
        head = f"law {law}, {TITLES[law]}:"
        if not did and not wrote:
            return f"{head} kept in all {_count(scenarios)}"
        words = [f"BROKEN in {_count(did)}"] if did else []
        words += [f"WRITTEN DOWN WRONG in {_count(wrote)}"] if wrote else []
        return f"{head} {', '.join(words)} (of its own: {len(scenarios)})"


def _count(scenarios: set[str]) -> str:
    return f"{len(scenarios)} scenario{'s' if len(scenarios) != 1 else ''}"
