"""NousResearch/hermes-agent PR 27391: ten models are asked, and one raises.

Right: ten results; and cancelling from outside still cancels.
"""

from __future__ import annotations

import attrs
import pytest
import trio
from trio.testing import MockClock

from embedkit.ask import Answer, Failure, Question, Said, ask_all
from embedkit.engine import open_engine
from embedkit.settings import PanelMember, Settings


@attrs.define(eq=False)
class Model:
    error: Exception | None = None
    was_cancelled: bool = False

    async def attempt(self, question: Question) -> Said:
        try:
            await trio.sleep(10)
        except trio.Cancelled:
            self.was_cancelled = True
            raise
        if self.error is not None:
            raise self.error
        return Said("yes")


def ten(broken: int) -> dict[str, Model]:
    return {f"m{number}": Model(KeyError("x") if number == broken else None) for number in range(10)}


@pytest.mark.parametrize("broken", range(10))
async def test_ten_results(broken: int, autojump_clock: MockClock) -> None:
    models = ten(broken)
    wanted = [PanelMember(provider="mine", alias=alias) for alias in models]
    async with open_engine(Settings()) as engine:
        replies = await ask_all(engine, "q", wanted, adapters=models)
    kinds = [type(result) for result in replies.results]
    assert kinds == [Failure if number == broken else Answer for number in range(10)]
    assert [result.alias for result in replies.results] == list(models)


async def test_cancelling_from_outside_still_cancels(autojump_clock: MockClock) -> None:
    models = ten(3)
    wanted = [PanelMember(provider="mine", alias=alias) for alias in models]
    async with open_engine(Settings()) as engine:
        with trio.move_on_after(5) as scope:
            await ask_all(engine, "q", wanted, adapters=models)
    assert scope.cancelled_caught
    assert all(model.was_cancelled for model in models.values())
