"""Children: groups, graces, bounded drains, and whoever holds a pipe. Their waits pass in the test's own time."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from child_programs import environ_of, is_running, open_files, pid_in, write_program
from fakes import until
from trio.testing import MockClock, wait_all_tasks_blocked

from embedkit.ask.children import LARGEST_OUTPUT, Ended, run_child

_SETTLED = 0.05  # seconds of real time in which a signalled child has had its turn


async def child(folder: Path, body: str, *, given: bytes = b"", limit: float = 60.0) -> Ended:
    path = write_program(folder, "child", body)
    return await run_child([str(path)], given=given, environ=environ_of(folder), limit=limit)


async def jump_once_ready(folder: Path, clock: MockClock, *jumps: float) -> None:
    await until((folder / "ready").exists)
    for seconds in jumps:
        await wait_all_tasks_blocked(_SETTLED)
        clock.jump(seconds)


async def test_input_output_errors_and_status(tmp_path: Path) -> None:
    ended = await child(
        tmp_path, "text = sys.stdin.read(); print(text * 2); print('no', file=sys.stderr); sys.exit(3)", given=b"hi"
    )
    assert (ended.text, ended.errors, ended.returncode) == ("hihi\n", b"no\n", 3)
    assert (ended.was_killed, ended.is_cut) == (False, False)


async def test_half_a_character_at_the_end(tmp_path: Path) -> None:
    ended = await child(tmp_path, "sys.stdout.buffer.write('gr\u00fc\u00df'.encode()[:-1])")
    assert ended.text == "gr\u00fc\ufffd"


async def test_a_character_that_comes_in_two_writes(tmp_path: Path) -> None:
    body = "out = sys.stdout.buffer\nfor byte in 'gr\u00fc\u00df'.encode(): out.write(bytes([byte])); out.flush()"
    assert (await child(tmp_path, body)).text == "gr\u00fc\u00df"


async def test_a_hundred_megabytes_are_read_and_not_kept(tmp_path: Path) -> None:
    ended = await child(tmp_path, "for _ in range(100): sys.stdout.write('x' * 1_000_000)")
    assert (ended.returncode, len(ended.output), ended.is_cut) == (0, LARGEST_OUTPUT, True)


async def test_who_never_reads_its_input_and_ends(tmp_path: Path) -> None:
    ended = await child(tmp_path, "print('done')", given=b"x" * 5_000_000)
    assert (ended.text, ended.returncode) == ("done\n", 0)


async def test_a_child_that_obeys_is_ended_at_the_limit(tmp_path: Path, mock_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(jump_once_ready, tmp_path, mock_clock, 60.0)
        ended = await child(tmp_path, "print('some', flush=True); ready(); forever()")
    assert (ended.was_killed, ended.returncode, ended.text) == (True, -15, "some\n")
    assert trio.current_time() == 60.0


async def test_a_child_that_ignores_sigterm_has_its_grace(tmp_path: Path, mock_clock: MockClock) -> None:
    body = "signal.signal(signal.SIGTERM, lambda *_: ready('asked')); ready(); forever()"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(jump_once_ready, tmp_path, mock_clock, 60.0, 1.0)
        ended = await child(tmp_path, body)
    assert (ended.was_killed, ended.returncode) == (True, -9)
    assert (tmp_path / "asked").exists()
    assert trio.current_time() == 61.0


GRANDCHILD = """
if os.fork() == 0:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ready("grandchild"); forever()
while not os.path.exists(os.path.join(here, "grandchild")): time.sleep(0.001)
print("parent", flush=True)
"""


async def test_a_grandchild_that_holds_the_pipe_is_waited_for_no_longer_than_the_drain(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(jump_once_ready, tmp_path, mock_clock, 1.0)
        ended = await child(tmp_path, GRANDCHILD + "ready()")
    assert (ended.was_killed, ended.returncode, ended.text) == (False, 0, "parent\n")
    await until(lambda: not is_running(pid_in(tmp_path, "grandchild")))


async def test_a_grandchild_that_ignores_sigterm_dies_with_its_group(tmp_path: Path, mock_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(jump_once_ready, tmp_path, mock_clock, 60.0)
        ended = await child(tmp_path, GRANDCHILD + "ready(); forever()")
    assert (ended.was_killed, ended.text) == (True, "parent\n")
    assert trio.current_time() == 60.0
    await until(lambda: not is_running(pid_in(tmp_path, "grandchild")))
    assert not is_running(pid_in(tmp_path))


@pytest.mark.parametrize("given", [b"", b"x" * 5_000_000])
async def test_cancelling_ends_the_group_and_leaves_no_pipe(
    tmp_path: Path, mock_clock: MockClock, given: bytes
) -> None:
    path = write_program(tmp_path, "child", GRANDCHILD + "ready(); forever()")
    await trio.to_thread.run_sync(int)  # the thread that starts processes
    before = open_files()
    async with trio.open_nursery() as nursery:
        with trio.CancelScope() as scope:

            async def stop() -> None:
                await until((tmp_path / "ready").exists)
                scope.cancel()

            nursery.start_soon(stop)
            await run_child([str(path)], given=given, environ=environ_of(tmp_path), limit=60.0)
    assert scope.cancelled_caught
    assert not is_running(pid_in(tmp_path))
    await until(lambda: not is_running(pid_in(tmp_path, "grandchild")))
    assert open_files() == before


async def test_cancelled_before_it_begins(tmp_path: Path) -> None:
    with trio.CancelScope() as scope:
        scope.cancel()
        await child(tmp_path, "ready(); forever()")
    assert scope.cancelled_caught
