from __future__ import annotations

import pytest

from embedkit.ask.consensus_rules import (
    Confidence,
    Standing,
    Word,
    accepted_issues,
    confidence_of,
    converges,
    critical_issues,
)


@pytest.mark.parametrize(
    ("peers", "arbiter", "accepted", "converged"),
    [
        ({"a": "APPROVE", "b": "APPROVE"}, "APPROVE", (), True),
        ({"a": "APPROVE"}, "APPROVE", (), True),
        ({}, "APPROVE", (), False),
        ({"a": "APPROVE", "b": "REVISE"}, "APPROVE", (), False),
        ({"a": "APPROVE", "b": "no-verdict"}, "APPROVE", (), False),
        ({"a": "APPROVE", "b": "failed"}, "APPROVE", (), False),
        ({"a": "APPROVE"}, "REVISE", (), False),
        ({"a": "APPROVE"}, "no-verdict", (), False),
        ({"a": "APPROVE"}, "APPROVE", ("it leaks",), False),
    ],
)
def test_when_a_round_is_a_consensus(
    peers: dict[str, Word], arbiter: Word, accepted: tuple[str, ...], converged: bool
) -> None:
    assert converges(peers, arbiter, accepted) == converged


@pytest.mark.parametrize(
    ("number", "confidence"), [(1, "high"), (2, "medium"), (3, "medium"), (4, "low"), (5, "low"), (50, "low")]
)
def test_confidence_falls(number: int, confidence: Confidence) -> None:
    assert confidence_of(number) == confidence


def test_a_peer_is_dropped_by_two_failures_in_a_row_of_any_kind() -> None:
    standing = Standing(["a", "b"])
    standing.note("a", "timeout")
    standing.note("b", "auth")
    standing.note("a", None)
    standing.note("b", "timeout")
    assert (standing.live, standing.dropped) == (["a"], {"b": "timeout"})
    standing.note("a", "timeout")
    assert standing.live == ["a"]
    standing.note("a", "empty")
    assert (standing.live, standing.dropped) == ([], {"b": "timeout", "a": "empty"})


def test_issues_are_lines_of_their_own() -> None:
    reply = "CRITICAL: it leaks\n- **CRITICAL:** it hangs\nnot CRITICAL: this\nCRITICAL: none\nCRITICAL:\n"
    assert critical_issues(reply) == ("it leaks", "it hangs")
    assert accepted_issues("ACCEPTED: it leaks\nREJECTED: it hangs\naccepted: None.") == ("it leaks",)
