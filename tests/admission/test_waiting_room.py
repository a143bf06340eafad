"""The waiting room: a bounded number of each class inside, the rest outside in the order they came."""

from __future__ import annotations

from typing import Any, Literal

import attrs
from hypothesis import given
from hypothesis import strategies as st

from embedkit.admission.order import Order
from embedkit.admission.room import Room
from embedkit.admission.waiting_room import WaitingRoom


@attrs.frozen(eq=False)
class Item:
    priority: Literal["interactive", "batch", "probe"]
    weight: int = 1
    tenant: str | None = None
    offered_at: float = 0.0


steps = st.lists(
    st.one_of(
        st.builds(Item, st.sampled_from(["interactive", "batch", "probe"])),
        st.tuples(st.sampled_from(["take", "leave"]), st.integers(0, 99)),
    ),
    max_size=50,
)


@given(steps, st.integers(1, 4))
def test_each_class_is_let_in_by_itself_and_in_order(sequence: list[Any], bound: int) -> None:
    waiting: WaitingRoom[Item] = WaitingRoom(Order(), bound)
    model: list[Item] = []
    for step in sequence:
        if isinstance(step, Item):
            assert waiting.is_full(step.priority) == (sum(i.priority == step.priority for i in model) >= bound)
            waiting.add(step, 0.0)
            model.append(step)
        elif model and step[0] == "leave":
            waiting.remove(leaver := model.pop(step[1] % len(model)), 0.0)
            assert leaver not in set(waiting)
        elif model:
            chosen = waiting.order.choose(0.0, Room(1))
            assert chosen is not None
            waiting.commit(chosen, 0.0, Room(1))
            model.remove(chosen)
        assert len(waiting) == len(model)
        assert set(waiting) == set(model)
        for priority in ("interactive", "batch", "probe"):
            of_class = [item for item in model if item.priority == priority]
            assert {item for item in waiting.order if item.priority == priority} == set(of_class[:bound])
