"""Law 3. A provider timeout is notified once, synchronously, before the lane takes another ticket."""

from __future__ import annotations

from collections.abc import Callable

import trio

from embedkit import Circuit, ProviderBusy, ProviderCircuitOpen, ProviderTimeout
from embedkit.testing.laws.scenario import Law
from embedkit.testing.stage import Caller, Stage, answers, fails
from embedkit.testing.trace import require

LAW = Law(3)
ROUNDS = range(6)


class Interrupt(BaseException):
    """Stands for KeyboardInterrupt and its kin."""


def _timeout() -> ProviderTimeout:
    return ProviderTimeout("no complete answer within 1 s")


def _check_shed(stage: Stage, caller: Caller, cause: Exception) -> None:
    stage.check_never_called(caller, "was queued in a run whose circuit has tripped")
    error = stage.check_error(caller, ProviderCircuitOpen)
    require(error.__cause__ is cause, f"{caller.name} was shed; the cause it names is {error.__cause__!r}")


@LAW.scenario("A times out and trips its run; B of that run makes no call")
async def trips(stage: Stage) -> None:
    """The plain case."""
    circuit, error = Circuit(), _timeout()
    first = await stage.park("A", fails(error), circuit=circuit, on_provider_timeout=circuit.trip)
    second = await stage.park("B", circuit=circuit, on_provider_timeout=circuit.trip)
    other = await stage.park("other run")
    await other.back.wait()
    require(stage.check_error(first, ProviderTimeout) is error, "A's error is not its own")
    _check_shed(stage, second, error)
    stage.check_answered(other, at=2.0)


@LAW.scenario("the hook is called once, with nothing taken", capacity=2)
async def once(stage: Stage) -> None:
    """What the hook sees is a lane that has settled and has not taken."""
    seen: list[tuple[Exception, int, int]] = []

    def hook(error: Exception) -> None:
        stage.trace.note("A: its hook is called")
        seen.append((error, stage.totals.in_flight, len(stage.order)))

    error = _timeout()
    await stage.park("long", answers(10.0))
    first = await stage.park("A", fails(error), on_provider_timeout=hook)
    for name in "BCD":
        await stage.park(name)
    await first.back.wait()
    await stage.rest()
    told = [(raised, begun) for raised, _, begun in seen]
    require(told == [(error, 2)], f"the hook was to be called once, as 2 calls had begun; it was called: {told}")
    in_flight = [count for _, count, _ in seen]
    stage.check_written(in_flight == [1], f"only 'long' was in flight; the lane told the hook {in_flight}", law=3)


def _trips_then_raises(circuit: Circuit, raised: Callable[[], Exception]) -> Callable[[Exception], None]:
    def hook(error: Exception) -> None:
        circuit.trip(error)
        raise raised()

    return hook


def _each_raise(name: str, raised: Callable[[], Exception]) -> None:
    @LAW.scenario(f"the hook trips and raises {name}")
    async def contained(stage: Stage) -> None:
        circuit, error = Circuit(), _timeout()
        hook = _trips_then_raises(circuit, raised)
        first = await stage.park("A", fails(error), circuit=circuit, on_provider_timeout=hook)
        gone = await stage.park("gone", circuit=circuit)
        stage.cancel(gone)
        second = await stage.park("B", circuit=circuit)
        other = await stage.park("other run")
        await other.back.wait()
        require(stage.check_error(first, ProviderTimeout) is error, "what the hook raised replaced A's error")
        _check_shed(stage, second, error)
        stage.check_never_called(gone, "was withdrawn before the trip")
        stage.check_answered(other, at=2.0)
        stage.check_written(stage.totals.in_flight == 0, "a slot was lost", law=3)


_each_raise("an exception", lambda: RuntimeError("a bug in the hook"))
_each_raise("a group", lambda: ExceptionGroup("several", [ValueError("one"), KeyError("two")]))


@LAW.scenario("the hook raises something that is no Exception", passes=Interrupt)
async def interrupted(stage: Stage) -> None:
    """It goes on, after the settlement."""

    def hook(_: Exception) -> None:
        raise Interrupt

    first = await stage.park("A", fails(_timeout()), on_provider_timeout=hook)
    second = await stage.park("B")
    await first.back.wait()
    await second.back.wait()
    await stage.rest()
    require(stage.crash is not None, "the hook raised something that is no Exception, and it came out nowhere")
    totals = stage.totals
    stage.check_written(
        (totals.failed, totals.in_flight) == (1, 0), f"A was to be settled before Interrupt went on: {totals}", law=3
    )


@LAW.scenario("a trip between B's wake-up and its dispatch")
async def trip_at_hand_off(stage: Stage) -> None:
    """A is answered and B is next; somebody trips B's run in that moment."""
    for rounds in ROUNDS:
        circuit, error, ended = Circuit(), _timeout(), trio.Event()
        await stage.park(f"A{rounds}", answers(at_end=ended.set))
        second = await stage.park(f"B{rounds}", circuit=circuit)
        await ended.wait()
        await _trip_in(stage, circuit, error, second, rounds)


@LAW.scenario("a trip just after B was offered to an idle lane")
async def trip_at_offer(stage: Stage) -> None:
    """Somebody sleeps in the lane and is woken for B."""
    await (await stage.park("first")).back.wait()
    await stage.rest()
    for rounds in ROUNDS:
        circuit = Circuit()
        second = stage.offer(f"B{rounds}", circuit=circuit)
        await _trip_in(stage, circuit, _timeout(), second, rounds)


async def _trip_in(stage: Stage, circuit: Circuit, error: Exception, caller: Caller, rounds: int) -> None:
    for _ in range(rounds):
        await trio.lowlevel.checkpoint()
    early = caller.calls == 0
    stage.trace.note(f"{caller.name}: its circuit is tripped")
    circuit.trip(error)
    await caller.back.wait()
    if early:
        _check_shed(stage, caller, error)
    await stage.rest()


@LAW.scenario("failures that are no provider timeout, whatever they say")
async def others(stage: Stage) -> None:
    """Nobody is told."""
    heard: list[Exception] = []
    for error in (ProviderBusy("ETIMEDOUT"), TimeoutError("PROVIDER_TIMEOUT"), OSError("ESOCKETTIMEDOUT")):
        caller = await stage.park(str(error), fails(error), on_provider_timeout=heard.append)
        await caller.back.wait()
        require(caller.error is error, f"the caller got {caller.error!r}")
    require(not heard, f"the hook heard {heard}")


@LAW.scenario("the limit of an attempt passes")
async def limit(stage: Stage) -> None:
    """The lane itself makes the timeout, with the ticket's limit."""
    heard: list[Exception] = []
    caller = await stage.park("A", answers(9.0), timeout=4.0, on_provider_timeout=heard.append)
    await caller.back.wait()
    error = stage.check_error(caller, ProviderTimeout)
    require(caller.back_at == 4.0, f"the limit is 4 s; A came back at {caller.back_at:g} s")
    require(heard == [error], f"the hook heard {heard}")


@LAW.scenario("the limit passes, and the transport fails as it closes")
async def limit_and_failure(stage: Stage) -> None:
    """Still a timeout: notified and called so."""
    heard: list[Exception] = []
    step = answers(9.0, closing=1.0, if_cut=OSError("reset"))
    caller = await stage.park("A", step, timeout=4.0, on_provider_timeout=heard.append)
    await caller.back.wait()
    error = stage.check_error(caller, ProviderTimeout)
    require(heard == [error], f"the hook heard {heard}")


@LAW.scenario("a trip lets in whom its shed tickets held back", capacity=2, needs=("weights",))
async def trip_wakes(stage: Stage) -> None:
    """A wide ticket of the run waits for room; a small one of another run waits behind it."""
    circuit = Circuit()
    await stage.park("long", answers(10.0))
    wide = await stage.park("wide", weight=2, circuit=circuit)
    other = await stage.park("other run")
    await trio.sleep(3.0)
    stage.trace.note("the circuit is tripped")
    circuit.trip(_timeout())
    stage.check_written(stage.totals.queued == 1, "a trip returns, and its ticket is still queued", law=3)
    await other.back.wait()
    require(other.began_at == [3.0], f"the trip was at 3 s; the one whom 'wide' held back began at {other.began_at}")
    stage.check_never_called(wide, "was shed")


@LAW.scenario("a trip sheds all of its run, and no one else", capacity=2)
async def trip_sheds_all(stage: Stage) -> None:
    """In the step of the trip; what is out goes on; the first cause wins."""
    circuit, error = Circuit(), _timeout()
    out = [await stage.park(name, answers(5.0), circuit=circuit) for name in "AB"]
    shed = [await stage.park(f"C{number}", circuit=circuit) for number in range(10)]
    others = [await stage.park(f"D{number}") for number in range(3)]
    await trio.sleep(1.0)
    stage.trace.note("the circuit is tripped, twice")
    circuit.trip(error)
    circuit.trip(ProviderTimeout("a later one"))
    queued = stage.totals.queued
    stage.check_written(queued == 3, f"3 tickets of no run wait; as trip() returns, {queued} are queued", law=3)
    require(circuit.shed == 10, f"10 tickets of the run were queued; the trip took {circuit.shed} out of the lane")
    await stage.rest()
    for caller in shed:
        require(caller.back_at == 1.0, f"{caller.name} was shed at 1 s, and came back at {caller.back_at:g} s")
        _check_shed(stage, caller, error)
    late = await stage.park("late", circuit=circuit)
    _check_shed(stage, late, error)
    await stage.run_dry()
    for caller in [*out, *others]:
        stage.check_answered(caller)


@LAW.scenario("the hook closes the lane")
async def hook_closes(stage: Stage) -> None:
    """Nothing is taken any more, and nobody stays parked."""
    first = await stage.park("A", fails(_timeout()), on_provider_timeout=lambda _: stage.close())
    second = await stage.park("B")
    await first.back.wait()
    await second.back.wait()
    stage.check_never_called(second, "was queued as the lane closed")


@LAW.scenario("the hook offers another ticket")
async def hook_offers(stage: Stage) -> None:
    """It comes last, like anybody."""
    await stage.park("A", fails(_timeout()), on_provider_timeout=lambda _: stage.offer("C"))
    await stage.park("B")
    await trio.sleep(5.0)
    stage.check_order("A", "B", "C")
