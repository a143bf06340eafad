"""A fan-out: every member's answer accounted for, in panel order, whatever becomes of it."""

from __future__ import annotations

from typing import NoReturn

import pytest
import trio
from asking_world import FakeAdapter, answer, asking, failure, provider_of
from trio.testing import MockClock, wait_all_tasks_blocked

from embedkit.ask import Question, Result, ask_all, ask_one, panel
from embedkit.errors import ProviderBusy, ProviderError, UsageError
from embedkit.settings import PanelMember, ProviderSettings
from embedkit.testing import open_scripted_engine


def members(count: int) -> list[PanelMember]:
    return [PanelMember(provider="own", alias=f"m{number}") for number in range(count)]


async def says(question: Question) -> str:
    return f"answer to {question.text}"


async def hangs(question: Question) -> NoReturn:
    await trio.sleep_forever()
    raise AssertionError


async def nothing(question: Question) -> str:
    return ""


def raises(error: BaseException) -> FakeAdapter:
    async def script(question: Question) -> NoReturn:
        await trio.lowlevel.checkpoint()
        raise error

    return FakeAdapter(script)


async def test_ten_members_one_raises_one_hangs_one_says_nothing(autojump_clock: MockClock) -> None:
    adapters = {member.alias: FakeAdapter(says) for member in members(10)}
    adapters |= {"m2": raises(ZeroDivisionError("secret")), "m5": FakeAdapter(hangs), "m9": FakeAdapter(nothing)}
    settled: list[Result] = []
    async with asking({}) as engine:
        replies = await ask_all(engine, "q", members(10), adapters=adapters, timeout=60.0, on_result=settled.append)
    kinds = {result.alias: getattr(result, "kind", None) for result in replies.results}
    assert list(kinds) == [member.alias for member in members(10)]
    assert {alias: kind for alias, kind in kinds.items() if kind} == {"m2": "unknown", "m5": "timeout", "m9": "empty"}
    assert failure(replies.results[2]).message == "provider own: it failed (ZeroDivisionError)"
    assert failure(replies.results[9]).attempts == 2
    assert [result.alias for result in settled[-2:]] == ["m9", "m5"]
    assert {result.alias for result in settled} == set(kinds)
    assert len(replies.answers) == 7


async def test_all_may_fail(autojump_clock: MockClock) -> None:
    adapters = {member.alias: raises(ProviderBusy("later", retry_after=7.0, status=429)) for member in members(3)}
    async with asking({}) as engine:
        replies = await ask_all(engine, "q", members(3), adapters=adapters)
    assert [failure(result).kind for result in replies.results] == ["rate-limit"] * 3
    assert [result.elapsed for result in replies.results] == pytest.approx([7.0] * 3)


@pytest.mark.parametrize(
    "error", [ExceptionGroup("g", [ValueError(), KeyError()]), ProviderError("odd"), MemoryError(), StopIteration()]
)
async def test_whatever_is_raised_is_one_failure(error: Exception, autojump_clock: MockClock) -> None:
    adapters = {"m0": raises(error), "m1": FakeAdapter(says)}
    async with asking({}) as engine:
        replies = await ask_all(engine, "q", members(2), adapters=adapters)
    failure(replies.results[0])
    answer(replies.results[1])


async def test_cancelling_from_outside_cancels_all(autojump_clock: MockClock) -> None:
    adapters = {member.alias: FakeAdapter(hangs) for member in members(10)}
    async with asking({}) as engine:
        with trio.move_on_after(5.0) as scope:
            await ask_all(engine, "q", members(10), adapters=adapters)
        assert scope.cancelled_caught
    assert [adapter.ended for adapter in adapters.values()] == [1] * 10


async def test_an_adapter_that_answers_a_cancellation_with_an_error_does_not_stop_it() -> None:
    async def stubborn(question: Question) -> NoReturn:
        try:
            await trio.sleep_forever()
        finally:
            raise ConnectionError
        raise AssertionError

    reached = False
    async with asking({}) as engine, trio.open_nursery() as nursery:
        with trio.CancelScope() as scope:
            nursery.start_soon(_stop, scope)
            await ask_one(engine, "q", members(1)[0], adapter=FakeAdapter(stubborn))
            await trio.lowlevel.checkpoint()
            reached = True
    assert (scope.cancelled_caught, reached) == (True, False)


async def _stop(scope: trio.CancelScope) -> None:
    await wait_all_tasks_blocked()
    scope.cancel()


async def test_max_fanout_omits_the_rest_and_who_cannot_be_asked_takes_no_place() -> None:
    providers = {"grok": ProviderSettings(kind="grok", model="g"), "box": _box(), "last": _box()}
    wanted = [PanelMember(provider="grok"), *members(2), PanelMember(provider="box")]
    adapters = {member.alias: FakeAdapter(says) for member in members(2)}
    async with asking(providers, max_fanout=2, environ={}) as engine:
        view = panel(engine, wanted, adapters=adapters)
        assert ([member.alias for member in view.asked], view.omitted) == (["m0", "m1"], ("box",))
        assert list(view.unavailable) == ["grok"]
        assert "XAI_API_KEY" in view.unavailable["grok"]
        assert not adapters["m0"].questions
        replies = await ask_all(engine, "q", wanted, adapters=adapters)
    assert [result.alias for result in replies.results] == ["grok", "m0", "m1"]
    assert (failure(replies.results[0]).kind, replies.omitted) == ("missing-auth", ("box",))
    assert replies.unavailable == view.unavailable


def _box() -> ProviderSettings:
    return ProviderSettings(kind="openai-compatible", base_url="http://127.0.0.1:9/v1", model="m")


async def test_without_a_panel_everybody_who_chats_is_asked() -> None:
    providers = {
        "box": _box(),
        "gemini": ProviderSettings(kind="gemini", model="embeds"),
        "router": ProviderSettings(kind="openrouter"),
    }
    async with asking(providers) as engine:
        assert [member.alias for member in panel(engine).asked] == ["box"]


async def test_names_that_are_not_there() -> None:
    async with asking({"box": _box(), "gemini": ProviderSettings(kind="gemini", model="embeds")}) as engine:
        with pytest.raises(UsageError, match="nobody called 'bax' to ask; there is box, gemini"):
            await ask_one(engine, "q", "bax")
        with pytest.raises(UsageError, match="twice"):
            await ask_all(engine, "q", ["box", "box"])
        assert failure(await ask_one(engine, "q", "gemini")).kind == "config"
    async with asking({}) as engine:
        with pytest.raises(UsageError, match="nobody can be asked"):
            await ask_all(engine, "q")


async def test_the_aliases_of_one_local_engine_share_its_lane(autojump_clock: MockClock) -> None:
    async with open_scripted_engine(slots=4, service=10.0) as served:
        wanted = [PanelMember(provider="box", alias=alias) for alias in "abc"]
        async with asking({"box": provider_of("ollama", served)}) as engine:
            replies = await ask_all(engine, "q", wanted)
    assert [result.alias for result in replies.results] == ["a", "b", "c"]
    assert sorted(result.elapsed for result in replies.results) == pytest.approx([10.0, 20.0, 30.0], abs=0.5)


async def test_twenty_instant_members_add_little() -> None:
    adapters = {member.alias: FakeAdapter(says) for member in members(20)}
    async with asking({}) as engine:
        await ask_all(engine, "q", members(20), adapters=adapters)
        replies = await ask_all(engine, "q", members(20), adapters=adapters)
    assert len(replies.answers) == 20
