"""Consensus: rounds of verdicts until all agree, or until it is known that they will not.

A round: the arbiter gives its verdict blind, while the peers give theirs; unless all approve and nobody sees a critical
issue, the arbiter then reads theirs, says which issues it accepts, and gives its verdict again; if that is no
consensus, it revises the proposal for the next round. The rules are in ``consensus_rules``.

The wall is the deadline of every question in it, so that each settles as a failure which says so, and nobody is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs
import trio

from embedkit.ask import prompts
from embedkit.ask.asking import Asked, Deadline
from embedkit.ask.consensus_rules import (
    FAILURES_TO_DROP,
    Confidence,
    Ending,
    Standing,
    Word,
    accepted_issues,
    confidence_of,
    converges,
    critical_issues,
)
from embedkit.ask.panel import Asking, Seating, seat
from embedkit.ask.results import Answer, Failure, Result
from embedkit.ask.roster import members_of
from embedkit.ask.verdicts import verdict_of
from embedkit.errors import UsageError
from embedkit.settings import Limit, PanelMember

if TYPE_CHECKING:
    from embedkit.ask.adapter import Adapter
    from embedkit.engine import Engine


@attrs.frozen(kw_only=True)
class Round:
    """One round of a consensus.

    Attributes:
        number: From 1.
        blind: The arbiter's verdict before it saw the others'.
        arbiter: Its verdict in the end.
        verdicts: Each live peer's, by alias: a verdict, ``no-verdict``, or ``failed``.
        critical: What peers call critical, and then what the arbiter does.
        accepted: What of it the arbiter accepts.
        replies: The arbiter's result and the peers', in that order.
        adjudication: The arbiter's second result, where it was asked.
    """

    number: int
    blind: Word
    arbiter: Word
    verdicts: dict[str, Word]
    critical: tuple[str, ...] = ()
    accepted: tuple[str, ...] = ()
    replies: tuple[Result, ...] = attrs.field(default=(), repr=False)
    adjudication: Result | None = attrs.field(default=None, repr=False)

    def as_json(self) -> dict[str, Any]:
        """Every attribute."""
        return {
            "number": self.number,
            "blind": self.blind,
            "arbiter": self.arbiter,
            "verdicts": dict(self.verdicts),
            "critical": list(self.critical),
            "accepted": list(self.accepted),
            "replies": [result.as_json() for result in self.replies],
            "adjudication": None if self.adjudication is None else self.adjudication.as_json(),
        }


@attrs.frozen(kw_only=True)
class Consensus:
    """What came of it.

    Attributes:
        status: ``converged``, or why not.
        confidence: Of a consensus: ``high`` in round 1, ``medium`` to 3, ``low`` after; else ``None``.
        arbiter: The arbiter's alias.
        proposal: The text that the last round judged.
        rounds: In order; one that the wall cut short is the last.
        dropped: Peers that failed twice in a row, each with the kind of its last failure.
        omitted: Aliases over ``max_fanout``.
        unavailable: Those who could not be asked at all, each with the reason.
        elapsed: Seconds in all.
    """

    status: Ending
    confidence: Confidence | None
    arbiter: str
    proposal: str = attrs.field(repr=False)
    rounds: tuple[Round, ...]
    dropped: dict[str, str]
    omitted: tuple[str, ...]
    unavailable: dict[str, str]
    elapsed: float

    def as_json(self) -> dict[str, Any]:
        """Every attribute."""
        return {
            "status": self.status,
            "confidence": self.confidence,
            "arbiter": self.arbiter,
            "proposal": self.proposal,
            "rounds": [one.as_json() for one in self.rounds],
            "dropped": dict(self.dropped),
            "omitted": list(self.omitted),
            "unavailable": dict(self.unavailable),
            "elapsed": self.elapsed,
        }


async def consensus(
    engine: Engine,
    proposal: str,
    wanted: Sequence[str | PanelMember] | None = None,
    *,
    arbiter: str | None = None,
    max_rounds: int | None = None,
    max_wall: float | Limit | None = None,
    timeout: float | None = None,
    adapters: Mapping[str, Adapter] | None = None,
    on_round: Callable[[Round], object] | None = None,
) -> Consensus:
    """Have a panel judge ``proposal`` until all approve.

    Args:
        engine: Through whose lanes.
        proposal: What is judged; its arbiter revises it between rounds.
        wanted: The peers; else the settings' panel. The arbiter among them is no peer.
        arbiter: An alias of the panel, or a provider; else ``consensus.arbiter``.
        max_rounds: Else ``consensus.max_rounds``.
        max_wall: Seconds in all, else ``consensus.max_wall``; a ``Limit`` says in messages whose they are.
        timeout: Seconds for one attempt; else the settings' ladder.
        adapters: Your own, by alias.
        on_round: Called with each round as it ends.

    Raises:
        UsageError: There is no arbiter, or nobody of a name.

    Cancellation:
        Every question that is out is cancelled, as in ``ask_all``.
    """
    settings = engine.settings.consensus
    name = settings.arbiter if arbiter is None else arbiter
    if name is None:
        raise UsageError("a consensus needs an arbiter; name one, or set consensus.arbiter")
    (judge,) = members_of(engine.settings, [name])
    peers = [member for member in members_of(engine.settings, wanted) if member.alias != judge.alias]
    own = Limit(settings.max_wall, "consensus.max_wall")
    wall = Deadline.of(own if max_wall is None else max_wall, "the request's max_wall")
    seating = seat(engine, peers, adapters) if peers else None
    judging = seat(engine, [judge], adapters, regards_health=False)
    judged = judging.places[0]
    if isinstance(judged, Failure):
        raise UsageError(f"the arbiter {judge.alias} cannot be asked: {judged.message}")
    asking = Asking(engine, seating or seat(engine, [judge], adapters), "consensus", timeout, wall, "interactive")
    run = _Run(asking, judged, proposal, seating)
    return await run.to_its_end(settings.max_rounds if max_rounds is None else max_rounds, on_round)


class _Run:
    """A consensus on its way."""

    def __init__(self, asking: Asking, arbiter: Asked, proposal: str, seating: Seating | None) -> None:
        places = () if seating is None else seating.places
        self._asking = asking
        self._arbiter = arbiter
        self._proposal = proposal
        self._omitted = () if seating is None else seating.omitted
        self._unavailable = {} if seating is None else seating.unavailable
        self._peers = {place.member.alias: place for place in places if isinstance(place, Asked)}
        self._standing = Standing(list(self._peers))
        self._rounds: list[Round] = []
        self._arbiter_failures = 0
        self._began_at = trio.current_time()

    async def to_its_end(self, max_rounds: int, on_round: Callable[[Round], object] | None) -> Consensus:
        status: Ending | None = None
        while status is None:
            number = len(self._rounds) + 1
            if not self._standing.live:
                status = "all-providers-circuit-broken"
            elif number > max_rounds:
                status = "max-rounds"
            else:
                self._asking.round = number
                status = await self._round(number, is_last=number == max_rounds)
                if on_round is not None:
                    on_round(self._rounds[-1])
        return Consensus(
            status=status,
            confidence=confidence_of(len(self._rounds)) if status == "converged" else None,
            arbiter=self._arbiter.member.alias,
            proposal=self._proposal,
            rounds=tuple(self._rounds),
            dropped=dict(self._standing.dropped),
            omitted=self._omitted,
            unavailable=self._unavailable,
            elapsed=trio.current_time() - self._began_at,
        )

    async def _round(self, number: int, *, is_last: bool) -> Ending | None:
        asked = [self._arbiter, *(self._peers[alias] for alias in self._standing.live)]
        question = prompts.review(self._proposal)
        own, *others = replies = await self._asking.ask_each([(place, question) for place in asked])
        self._rounds.append(_first_half(number, own, others, replies))
        if self._is_over:
            return "max-wall"
        for result in others:
            self._standing.note(result.alias, result.kind if isinstance(result, Failure) else None)
        if not self._standing.live:
            return "all-providers-circuit-broken"
        if isinstance(own, Failure):
            return self._arbiter_failed()
        self._arbiter_failures = 0
        reviews = {result.alias: result.text for result in others if isinstance(result, Answer)}
        ending = await self._adjudicate(own, reviews)
        if ending is None and not is_last and not self._arbiter_failures:
            ending = await self._revise(reviews)
        return ending

    async def _adjudicate(self, own: Answer, reviews: Mapping[str, str]) -> Ending | None:
        this = self._rounds[-1]
        if not this.critical and converges(this.verdicts, this.blind, ()):
            return "converged"
        question = prompts.adjudicate(self._proposal, own.text, reviews)
        result = await self._asking.ask(self._arbiter, question)
        accepted = accepted_issues(result.text) if isinstance(result, Answer) else ()
        this = self._rounds[-1] = attrs.evolve(this, adjudication=result, arbiter=_word(result), accepted=accepted)
        if self._is_over:
            return "max-wall"
        if isinstance(result, Failure):
            return self._arbiter_failed()
        self._arbiter_failures = 0
        return "converged" if converges(this.verdicts, this.arbiter, accepted) else None

    async def _revise(self, reviews: Mapping[str, str]) -> Ending | None:
        question = prompts.revise(self._proposal, self._rounds[-1].accepted, reviews)
        result = await self._asking.ask(self._arbiter, question)
        if self._is_over:
            return "max-wall"
        if isinstance(result, Failure):
            return self._arbiter_failed()
        self._proposal = result.text
        return None

    def _arbiter_failed(self) -> Ending | None:
        self._arbiter_failures += 1
        return "arbiter-failed" if self._arbiter_failures >= FAILURES_TO_DROP else None

    @property
    def _is_over(self) -> bool:
        wall = self._asking.deadline
        return wall is not None and trio.current_time() >= wall.at


def _first_half(number: int, own: Result, others: Sequence[Result], replies: tuple[Result, ...]) -> Round:
    texts = [result.text for result in (*others, own) if isinstance(result, Answer)]
    critical = tuple(issue for text in texts for issue in critical_issues(text))
    verdicts = {result.alias: _word(result) for result in others}
    blind = _word(own)
    return Round(number=number, blind=blind, arbiter=blind, verdicts=verdicts, critical=critical, replies=replies)


def _word(result: Result) -> Word:
    if isinstance(result, Failure):
        return "failed"
    return verdict_of(result.text) or "no-verdict"
