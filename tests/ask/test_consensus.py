"""Rounds that converge, dissent, lose peers, and run out of time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import trio
from asking_world import FakeAdapter, asking
from trio.testing import MockClock

from embedkit.ask import AskFailed, Consensus, Question, consensus
from embedkit.errors import UsageError
from embedkit.settings import PanelMember

APPROVE, REVISE = "VERDICT: APPROVE", "VERDICT: REVISE"
HANGS, FAILS = "(hangs)", "(fails)"


def saying(*replies: str, seconds: float = 1.0) -> FakeAdapter:
    """Says these in order, the last one for ever."""
    left = list(replies)

    async def script(question: Question) -> str:
        await trio.sleep(seconds)
        reply = left.pop(0) if len(left) > 1 else left[0]
        if reply == HANGS:
            await trio.sleep_forever()
        if reply == FAILS:
            raise AskFailed("auth", "no")
        return reply

    return FakeAdapter(script)


async def judged(arbiter: FakeAdapter, *peers: FakeAdapter, **more: Any) -> Consensus:
    adapters = {f"p{number}": peer for number, peer in enumerate(peers)} | {"judge": arbiter}
    panel = tuple(PanelMember(provider="own", alias=alias) for alias in adapters)
    log: Path | None = more.pop("log", None)
    # The aliases are in no settings: the caller brings them and their adapters along.
    async with asking({"own": _anybody()}, panel=panel, log=log) as engine:
        return await consensus(engine, "The plan.", arbiter="judge", adapters=adapters, timeout=60.0, **more)


def _anybody() -> Any:
    from embedkit.settings import ProviderSettings

    return ProviderSettings(kind="openai-compatible", base_url="http://127.0.0.1:9/v1", model="m", capacity=16)


def words(found: Consensus) -> list[tuple[str, str, list[str]]]:
    return [(one.blind, one.arbiter, list(one.verdicts.values())) for one in found.rounds]


async def test_all_approve_at_once(autojump_clock: MockClock) -> None:
    arbiter = saying(APPROVE)
    found = await judged(arbiter, saying(APPROVE), saying(APPROVE))
    assert (found.status, found.confidence, len(found.rounds)) == ("converged", "high", 1)
    assert words(found) == [("APPROVE", "APPROVE", ["APPROVE", "APPROVE"])]
    assert len(arbiter.questions) == 1  # nothing was left to adjudicate
    assert found.elapsed == pytest.approx(1.0)


async def test_the_arbiter_is_blind_at_first(autojump_clock: MockClock) -> None:
    arbiter = saying(APPROVE, f"ACCEPTED: none\n{APPROVE}", "The better plan.", APPROVE)
    found = await judged(arbiter, saying("MINE IS BETTER " + REVISE, APPROVE))
    assert "MINE IS BETTER" not in arbiter.questions[0]
    assert "MINE IS BETTER" in arbiter.questions[1]
    assert (found.status, found.confidence, found.proposal) == ("converged", "medium", "The better plan.")


@pytest.mark.parametrize(
    ("arbiter", "peers", "status", "rounds", "confidence"),
    [
        # a critical issue is refused by the arbiter: a consensus all the same
        ([APPROVE, f"REFUSED: it leaks\n{APPROVE}"], [[f"CRITICAL: it leaks\n{APPROVE}"]], "converged", 1, "high"),
        # accepted: it is not, though everybody approves
        (
            [APPROVE, f"ACCEPTED: it leaks\n{APPROVE}", "Plan 2", APPROVE],
            [[f"CRITICAL: it leaks\n{APPROVE}", APPROVE]],
            "converged",
            2,
            "medium",
        ),
        # the arbiter's own critical issue is adjudicated like the others'
        (
            [f"CRITICAL: it leaks\n{APPROVE}", f"ACCEPTED: it leaks\n{APPROVE}", "Plan 2"],
            [[APPROVE]],
            "max-rounds",
            3,
            None,
        ),
        ([f"CRITICAL: it leaks\n{APPROVE}", f"REFUSED: it leaks\n{APPROVE}"], [[APPROVE]], "converged", 1, "high"),
        # nobody but the arbiter hangs, and the wall is far
        ([HANGS], [[APPROVE]], "arbiter-failed", 2, None),
        # the arbiter is persuaded by its peers
        ([REVISE, APPROVE], [[APPROVE]], "converged", 1, "high"),
        # the arbiter holds out
        ([REVISE, REVISE, "Plan 2"], [[APPROVE]], "max-rounds", 3, None),
        # one peer holds out
        ([APPROVE, APPROVE, "Plan 2"], [[APPROVE], [REVISE]], "max-rounds", 3, None),
        # a reply without a verdict is no approval
        ([APPROVE], [["It is quite good, and there is nothing to add to it."]], "max-rounds", 3, None),
        # one failure, then an approval
        ([APPROVE, APPROVE, "Plan 2", APPROVE], [[APPROVE], [FAILS, APPROVE]], "converged", 2, "medium"),
        # a peer fails twice, is dropped, and the others agree
        ([APPROVE], [[APPROVE], [FAILS]], "converged", 3, "medium"),
        ([APPROVE], [[APPROVE], [HANGS]], "converged", 3, "medium"),
        # none left
        ([APPROVE], [[FAILS], [HANGS]], "all-providers-circuit-broken", 2, None),
        # the arbiter itself fails
        ([FAILS], [[APPROVE]], "arbiter-failed", 2, None),
        ([APPROVE, FAILS], [[REVISE]], "arbiter-failed", 2, None),
    ],
)
async def test_how_it_ends(
    arbiter: Sequence[str],
    peers: Sequence[Sequence[str]],
    status: str,
    rounds: int,
    confidence: str | None,
    autojump_clock: MockClock,
) -> None:
    found = await judged(saying(*arbiter), *(saying(*peer) for peer in peers), max_rounds=3)
    assert (found.status, len(found.rounds), found.confidence) == (status, rounds, confidence)
    assert all(len(one.replies) == 1 + len(one.verdicts) for one in found.rounds)


async def test_a_late_consensus_is_worth_less(autojump_clock: MockClock) -> None:
    found = await judged(saying(APPROVE), saying(REVISE, REVISE, REVISE, APPROVE), max_rounds=5)
    assert (found.status, found.confidence, len(found.rounds)) == ("converged", "low", 4)


async def test_who_is_dropped_is_reported_and_asked_no_more(autojump_clock: MockClock) -> None:
    hanging, failing = saying(HANGS), saying(FAILS)
    found = await judged(saying(REVISE), saying(APPROVE), hanging, failing, max_rounds=5)
    assert found.dropped == {"p1": "timeout", "p2": "auth"}
    assert (len(hanging.questions), len(failing.questions)) == (2, 2)
    assert [list(one.verdicts) for one in found.rounds] == [["p0", "p1", "p2"]] * 2 + [["p0"]] * 3
    assert found.rounds[0].verdicts == {"p0": "APPROVE", "p1": "failed", "p2": "failed"}


async def test_the_wall_is_checked_inside_a_round_too(autojump_clock: MockClock) -> None:
    found = await judged(saying(APPROVE), saying(APPROVE), saying(HANGS), max_wall=20.0)
    assert (found.status, found.confidence) == ("max-wall", None)
    assert found.elapsed == pytest.approx(20.0)
    assert found.rounds[-1].verdicts == {"p0": "APPROVE", "p1": "failed"}
    assert found.dropped == {}


async def test_the_wall_holds_over_many_rounds(autojump_clock: MockClock) -> None:
    found = await judged(saying(REVISE), saying(REVISE), max_rounds=100, max_wall=30.0)
    assert found.status == "max-wall"
    assert found.elapsed == pytest.approx(30.0)
    assert len(found.rounds) == 10


async def test_cancelling_ends_every_question(autojump_clock: MockClock) -> None:
    peers = [saying(HANGS), saying(HANGS)]
    with trio.move_on_after(5.0) as scope:
        await judged(saying(APPROVE), *peers)
    assert scope.cancelled_caught
    assert [peer.ended for peer in peers] == [1, 1]


async def test_without_peers_or_arbiter(autojump_clock: MockClock) -> None:
    found = await judged(saying(APPROVE))
    assert (found.status, found.rounds) == ("all-providers-circuit-broken", ())
    async with asking({"own": _anybody()}) as engine:
        with pytest.raises(UsageError, match="needs an arbiter"):
            await consensus(engine, "The plan.")
