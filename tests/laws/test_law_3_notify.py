"""Law 3, sharper: what trips a run and what does not, and a hook's misdeeds."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio
from our_lanes import SETTLEMENTS, open_house
from trio.testing import MockClock

from embedkit import (
    Circuit,
    ConnectionRefused,
    EmbedkitError,
    LaneClosed,
    ModelNotResident,
    ProviderBusy,
    ProviderCircuitOpen,
    ProviderFailure,
    ProviderTimeout,
    StoreError,
    Ticket,
    TransportClosed,
    is_provider_timeout,
)
from embedkit.testing import Settlement
from embedkit.testing.stage import Caller, answers, fails, hangs

TIMEOUT_CODES = ("PROVIDER_TIMEOUT", "OPENAI_COMPATIBLE_REQUEST_TIMEOUT", "ETIMEDOUT", "ESOCKETTIMEDOUT")


class Coded(Exception):
    """An error of another library, with a code that looks like ours."""

    code = "ETIMEDOUT"


NEGATIVES: dict[str, Callable[[], Exception]] = {
    "generic": lambda: ProviderFailure("failed"),
    "busy": lambda: ProviderBusy("ETIMEDOUT"),
    "model-load": lambda: ModelNotResident("PROVIDER_TIMEOUT"),
    "refused": lambda: ConnectionRefused("connect ETIMEDOUT"),
    "reset": lambda: TransportClosed("ESOCKETTIMEDOUT"),
    "store, by text": lambda: StoreError("OPENAI_COMPATIBLE_REQUEST_TIMEOUT"),
    "store, by code": lambda: StoreError("no", code="KB_ETIMEDOUT"),
    "write": lambda: OSError("ETIMEDOUT"),
    "foreign": Coded,
    "circuit open": lambda: ProviderCircuitOpen("open"),
    "lower case": lambda: ProviderFailure("no", code="etimedout"),
    "longer": lambda: ProviderFailure("no", code="ETIMEDOUT_X"),
    "durable": lambda: ProviderFailure("no", code="KB_VECTOR_EMBED_PROVIDER_TIMEOUT"),
    "python's own": lambda: TimeoutError("timed out"),
    "a group of one": lambda: ExceptionGroup("one", [ProviderTimeout("late")]),
}


@pytest.mark.parametrize("name", NEGATIVES)
@pytest.mark.parametrize("settlement", SETTLEMENTS)
async def test_ac_7_negative_matrix(settlement: Settlement, name: str, autojump_clock: MockClock) -> None:
    circuit, error = Circuit(), NEGATIVES[name]()
    async with open_house(settlement, autojump_clock) as house:
        caller = await house.stage.park("A", fails(error), circuit=circuit, on_provider_timeout=circuit.trip)
        behind = await house.stage.park("B", circuit=circuit)
        await behind.back.wait()
        assert caller.error is error
        assert behind.value == "B"
        assert not circuit.is_open
        assert not is_provider_timeout(error)
        house.check_over()


@pytest.mark.parametrize("when", ["queued", "in flight"])
@pytest.mark.parametrize("settlement", SETTLEMENTS)
async def test_ac_7_an_abort_never_trips(settlement: Settlement, when: str, autojump_clock: MockClock) -> None:
    circuit = Circuit()
    async with open_house(settlement, autojump_clock) as house:
        if when == "queued":
            await house.stage.park("blocker", answers(3.0))
        caller = await house.stage.park("A", answers(2.0), circuit=circuit, on_provider_timeout=circuit.trip)
        caller.around.cancel()
        await trio.sleep(10.0)
        assert not circuit.is_open
        house.check_over()


@pytest.mark.parametrize("settlement", SETTLEMENTS)
async def test_ac_7_an_open_circuit_is_not_tripped_again(settlement: Settlement, autojump_clock: MockClock) -> None:
    circuit, first, heard = Circuit(), ProviderTimeout("first"), list[Exception]()
    async with open_house(settlement, autojump_clock) as house:
        circuit.trip(first)
        house.shed_at_the_door = 1
        caller = await house.stage.park("A", circuit=circuit, on_provider_timeout=heard.append)
        error = caller.error
        assert type(error) is ProviderCircuitOpen
        assert error.__cause__ is first
        assert (caller.calls, heard, circuit.cause) == (0, [], first)
        totals = house.lane.statistics().totals
        assert totals.offered == 0  # shed without touching the lane
        assert house.row().outcome == "shed"


async def test_a_detached_timeout_trips_its_run_if_that_is_still_open(autojump_clock: MockClock) -> None:
    circuit, error = Circuit(), ProviderTimeout("late")
    async with open_house("provider", autojump_clock) as house:
        leaver = await house.stage.park("A", fails(error, 5.0), circuit=circuit, on_provider_timeout=circuit.trip)
        leaver.around.cancel()
        behind = await house.stage.park("B", circuit=circuit)
        await behind.back.wait()
        assert circuit.cause is error
        assert type(behind.error) is ProviderCircuitOpen


class Stop(BaseException):
    pass


def _raises(circuit: Circuit, error: BaseException) -> Callable[[Exception], None]:
    def hook(timeout: Exception) -> None:
        circuit.trip(timeout)
        raise error

    return hook


@pytest.mark.parametrize(
    "raised", [RuntimeError("x"), ExceptionGroup("x", [ValueError("y")]), ProviderTimeout("of the hook")]
)
@pytest.mark.parametrize("code", TIMEOUT_CODES)
@pytest.mark.parametrize("settlement", SETTLEMENTS)
async def test_ac_8_a_hook_that_trips_and_raises_changes_nothing(
    settlement: Settlement,
    code: str,
    raised: Exception,
    autojump_clock: MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    circuit, error = Circuit(), ProviderTimeout("a text of the input", code=code)
    async with open_house(settlement, autojump_clock) as house:
        caller = await house.stage.park(
            "A", fails(error), circuit=circuit, on_provider_timeout=_raises(circuit, raised)
        )
        gone = await house.stage.park("gone", circuit=circuit)
        gone.around.cancel()
        second = await house.stage.park("B", circuit=circuit)
        other = await house.stage.park("other")
        await other.back.wait()
        assert caller.error is error
        assert (type(second.error), second.calls, gone.calls) == (ProviderCircuitOpen, 0, 0)
        assert other.back_at == 2.0
        assert house.endings == {"failed": 1, "withdrawn": 1, "shed": 1, "succeeded": 1}
        house.check_over()
    assert "a text of the input" not in caplog.text
    assert type(raised).__name__ in caplog.text


@pytest.mark.parametrize("settlement", SETTLEMENTS)
async def test_ac_8_what_is_no_exception_passes_after_the_slot_is_clean(
    settlement: Settlement, autojump_clock: MockClock
) -> None:
    circuit, error = Circuit(), ProviderTimeout("late")
    seen: list[Caller] = []
    with pytest.RaisesGroup(Stop, flatten_subgroups=True):
        async with open_house(settlement, autojump_clock) as house:
            hook = _raises(circuit, Stop())
            seen.append(await house.stage.park("A", fails(error), circuit=circuit, on_provider_timeout=hook))
            seen.append(await house.stage.park("B"))
            with trio.CancelScope(shield=True):
                await trio.sleep(2.0)
            assert house.endings == {"failed": 1, "shed": 1}
            house.check_over()
    assert seen[0].error is error
    assert type(seen[1].error) is LaneClosed


@pytest.mark.parametrize("settlement", SETTLEMENTS)
async def test_an_async_hook_is_refused_aloud_and_never_left_unawaited(
    settlement: Settlement, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def hook(_: Exception) -> None:
        raise AssertionError("it never runs")

    async with open_house(settlement, autojump_clock) as house:
        caller = await house.stage.park("A", fails(ProviderTimeout("late")), on_provider_timeout=hook)
        await caller.back.wait()
        assert type(caller.error) is ProviderTimeout
    assert "must be a plain function" in caplog.text


@pytest.mark.parametrize("settlement", SETTLEMENTS)
async def test_the_trip_returns_before_any_shed_task_runs_and_sheds_in_order_over_lanes(
    settlement: Settlement, autojump_clock: MockClock
) -> None:
    circuit = Circuit()
    async with open_house(settlement, autojump_clock) as one, open_house(settlement, autojump_clock) as two:
        for house in (one, two):
            await house.stage.park("blocker", hangs())
        waiting = [await house.stage.park(str(n), circuit=circuit) for n in range(10) for house in (one, two)]
        circuit.trip(ProviderTimeout("late"))
        assert circuit.shed == 20
        assert not any(caller.back.is_set() for caller in waiting)
        for house in (one, two):
            totals = house.lane.statistics().totals
            assert (totals.queued, totals.shed) == (0, 10)
        for caller in waiting:
            await caller.back.wait()
            assert type(caller.error) is ProviderCircuitOpen
        assert len({id(caller.error) for caller in waiting}) == 20  # each its own, since errors carry clocks


def test_every_embedkit_error_with_one_of_the_four_codes_is_a_timeout() -> None:
    for code in TIMEOUT_CODES:
        assert is_provider_timeout(EmbedkitError("any", code=code))
    for other in (None, "ETIMEDOUT", 7, BaseException("ETIMEDOUT"), object()):
        assert not is_provider_timeout(other)


@pytest.mark.parametrize("settlement", SETTLEMENTS)
async def test_critical_sections_are_protected_from_keyboard_interrupt_and_provider_calls_are_not(
    settlement: Settlement, autojump_clock: MockClock
) -> None:
    seen: dict[str, bool] = {}

    def note(where: str) -> int:
        seen[where] = trio.lowlevel.currently_ki_protected()
        return 1

    async def call(_: None) -> None:
        note("call")
        raise ProviderTimeout("late")

    async with open_house(settlement, autojump_clock, capacity=lambda: note("offer and settlement")) as house:
        with pytest.raises(ProviderTimeout):
            await house.lane.run(call, Ticket(on_provider_timeout=lambda _: note("hook")))
        house.check_over()
    assert seen == {"offer and settlement": True, "hook": True, "call": False}
