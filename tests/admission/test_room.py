"""The arithmetic of room."""

from __future__ import annotations

from typing import Literal

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedkit.admission.room import Room


@attrs.frozen(eq=False)
class Item:
    priority: Literal["interactive", "batch", "probe"] = "batch"
    weight: int = 1
    tenant: str | None = None
    offered_at: float = 0.0


@pytest.mark.parametrize(("capacity", "reserve", "ceiling"), [(1, 0, 1), (1, 1, 1), (4, 1, 3), (4, 9, 1)])
def test_the_ceiling_is_what_the_reserve_leaves_and_never_nothing(capacity: int, reserve: int, ceiling: int) -> None:
    assert Room(capacity, reserve).ceiling == ceiling


def test_a_ticket_wider_than_the_lane_fits_an_idle_lane_and_only_that() -> None:
    room, wide = Room(2), Item(weight=3)
    assert room.fits(wide)
    room.enter(Item())
    assert not room.fits(wide)
    assert not room.held_by_ceiling(wide)  # people hold it back as well: it keeps its place in front


def test_people_use_what_batch_work_must_leave() -> None:
    room = Room(2, reserve=1)
    room.enter(Item())
    assert not room.fits(Item())
    assert not room.fits(Item("probe"))
    assert room.fits(Item("interactive"))
    assert room.held_by_ceiling(Item())
    assert not room.held_by_ceiling(Item("interactive"))


def test_people_who_fill_the_lane_are_not_the_ceiling() -> None:
    room = Room(2, reserve=1)
    room.enter(Item("interactive", 2))
    assert not room.fits(Item())
    assert not room.held_by_ceiling(Item())


items = st.builds(Item, st.sampled_from(["interactive", "batch", "probe"]), st.integers(1, 9))


@given(st.lists(items), st.integers(1, 9), st.integers(0, 9))
def test_what_leaves_is_what_entered(entered: list[Item], capacity: int, reserve: int) -> None:
    room = Room(capacity, reserve)
    for item in entered:
        room.enter(item)
    for item in entered:
        room.leave(item)
    assert room == Room(capacity, reserve)
