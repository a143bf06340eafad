"""A ticket by itself: what it refuses, and that it is a cancel scope from the start."""

from __future__ import annotations

from typing import Any

import pytest

from embedkit import Clocks, Ids, Ticket


def test_what_it_is_without_a_word() -> None:
    ticket = Ticket()
    assert (ticket.priority, ticket.weight, ticket.inputs, ticket.attempts) == ("interactive", 1, 1, 0)
    assert ticket.clocks == Clocks(0.0, 0.0, 0.0)
    assert ticket.ids == Ids(service="library", stage="query", role="embedding", run=None)


@pytest.mark.parametrize("weight", [0, -1, True, 1.0, "1", None])
def test_a_weight_is_a_positive_whole_number(weight: Any) -> None:
    with pytest.raises(ValueError, match="weight must be a positive whole number, not "):
        Ticket(weight=weight)


def test_its_scope_has_its_deadline() -> None:
    assert Ticket(deadline_at=7.0).scope.deadline == 7.0


def test_two_tickets_alike_are_two_tickets() -> None:
    assert Ticket() != Ticket()
    assert len({Ticket(), Ticket()}) == 2


def test_it_shows_no_work() -> None:
    assert "call" not in repr(Ticket())
