"""codex and gemini, played by scripted programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import trio
from asking_world import answer, asking, failure
from child_programs import environ_of, gemini_document, is_running, open_files, pid_in, write_program
from fakes import until
from trio.testing import MockClock, wait_all_tasks_blocked

from embedkit.ask import Result, ask_one, panel
from embedkit.ask.program_words import read_output, scrubbed
from embedkit.settings import ProviderSettings

LONG = "The lane is fair, since what is shared is the time of the engine and not a count of dispatches."


async def asked(folder: Path, kind: str, body: str, question: str = "q", **more: str) -> Result:
    write_program(folder, "codex" if kind == "codex" else "gemini", body)
    described = ProviderSettings(kind=kind, timeout=60.0)  # type: ignore[arg-type]
    async with asking({"cli": described}, environ=environ_of(folder, **more)) as engine:
        return await ask_one(engine, question, "cli")


async def jumps(folder: Path, clock: MockClock, *steps: tuple[str, float]) -> None:
    """When a file of that name is there, that much time passes."""
    for name, seconds in steps:
        await until((folder / name).exists)
        await wait_all_tasks_blocked(0.05)
        clock.jump(seconds)


async def test_codex_answers(tmp_path: Path) -> None:
    body = "codex(sys.stdin.read() + ' ' + ' '.join(sys.argv[1:]))"
    said = answer(await asked(tmp_path, "codex", body, "Is it fair?"))
    assert said.text == "Is it fair? exec --json --skip-git-repo-check --sandbox read-only -"
    assert (said.thread, said.attempts) == ("t-1", 1)
    assert said.usage is not None
    assert (said.usage.prompt, said.usage.answer) == (3, 4)


@pytest.mark.parametrize("form", ["json", "plain", "noise"])
async def test_gemini_answers(tmp_path: Path, form: str) -> None:
    written = {
        "json": gemini_document(LONG),
        "plain": LONG,
        "noise": f"Loaded cached credentials.\n{gemini_document(LONG)}",
    }
    said = answer(await asked(tmp_path, "gemini-cli", f"print({written[form]!r})"))
    assert said.text.strip() == LONG


async def test_agy_serves_where_gemini_is_not(tmp_path: Path) -> None:
    write_program(tmp_path, "agy", f"print({LONG!r})")
    async with asking({"cli": ProviderSettings(kind="gemini-cli")}, environ=environ_of(tmp_path)) as engine:
        answer(await ask_one(engine, "q", "cli"))


async def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    async with asking({"cli": ProviderSettings(kind="codex")}, environ=environ_of(tmp_path)) as engine:
        assert "codex" in panel(engine).unavailable["cli"]
        failed = failure(await ask_one(engine, "q", "cli"))
        assert (failed.kind, failed.attempts) == ("not-found", 0)


async def test_an_announcement_is_empty_and_tried_again(tmp_path: Path, mock_clock: MockClock) -> None:
    body = """
name = "first" if not os.path.exists(os.path.join(here, "first")) else "second"
print("I will look at the code.", flush=True)
ready(name)
"""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(jumps, tmp_path, mock_clock, ("first", 2.0))
        failed = failure(await asked(tmp_path, "gemini-cli", body))
    assert (failed.kind, failed.attempts) == ("empty", 2)
    assert (tmp_path / "second").exists()


async def test_an_announcement_is_empty_on_the_drain_path_too(tmp_path: Path, mock_clock: MockClock) -> None:
    body = """
name = "first" if not os.path.exists(os.path.join(here, "first")) else "second"
print("I will look at the code.", flush=True)
if os.fork() == 0:
    forever()
ready(name)
"""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(jumps, tmp_path, mock_clock, ("first", 1.0), ("first", 2.0), ("second", 1.0))
        failed = failure(await asked(tmp_path, "gemini-cli", body))
    assert (failed.kind, failed.attempts) == ("empty", 2)


LATE = """
ready()
while not os.path.exists(os.path.join(here, "late")): time.sleep(0.001)
"""


@pytest.mark.parametrize(("written", "kind"), [(LONG, None), ("I will look at it.", "timeout"), ("", "timeout")])
async def test_what_is_finished_in_the_recovery_grace(
    tmp_path: Path, written: str, kind: str | None, mock_clock: MockClock
) -> None:
    async def pass_time() -> None:
        await jumps(tmp_path, mock_clock, ("ready", 61.0))
        (tmp_path / "late").touch()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(pass_time)
        result = await asked(tmp_path, "gemini-cli", f"{LATE}\nprint({written!r})")
    assert (getattr(result, "kind", None), result.attempts) == (kind, 1)


async def test_after_the_grace_it_is_a_timeout_whatever_it_wrote(tmp_path: Path, mock_clock: MockClock) -> None:
    body = f"print('401 Unauthorized', file=sys.stderr); print({LONG!r}, flush=True); ready(); forever()"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(jumps, tmp_path, mock_clock, ("ready", 180.0))
        failed = failure(await asked(tmp_path, "codex", body))
    assert (failed.kind, failed.attempts, failed.elapsed) == ("timeout", 1, 180.0)
    assert "providers.cli.timeout" in failed.message
    assert "ask.recovery_grace" in failed.message
    assert not is_running(pid_in(tmp_path))


async def test_a_deadline_ends_it_at_once(tmp_path: Path, mock_clock: MockClock) -> None:
    write_program(tmp_path, "codex", "ready(); forever()")
    async with (
        asking({"cli": ProviderSettings(kind="codex")}, environ=environ_of(tmp_path)) as engine,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(jumps, tmp_path, mock_clock, ("ready", 10.0))
        failed = failure(await ask_one(engine, "q", "cli", deadline=10.0))
    assert (failed.kind, failed.code) == ("timeout", "DEADLINE_EXCEEDED")
    assert not is_running(pid_in(tmp_path))


@pytest.mark.parametrize("phase", ["running", "drain", "retry sleep"])
async def test_cancelling_leaves_no_process_and_no_pipe(tmp_path: Path, phase: str, mock_clock: MockClock) -> None:
    bodies = {
        "running": "ready(); forever()",
        "drain": "codex('ok')\nif os.fork() == 0: ready('grandchild'); forever()\nready()",
        "retry sleep": "ready()",
    }
    write_program(tmp_path, "codex", bodies[phase])
    async with asking({"cli": ProviderSettings(kind="codex")}, environ=environ_of(tmp_path)) as engine:
        await trio.to_thread.run_sync(int)  # the thread that starts processes
        before = open_files()
        async with trio.open_nursery() as nursery:
            with trio.CancelScope() as scope:

                async def stop() -> None:
                    await until((tmp_path / "ready").exists)
                    await wait_all_tasks_blocked(0.05)
                    scope.cancel()

                nursery.start_soon(stop)
                await ask_one(engine, "q", "cli")
        assert scope.cancelled_caught
        assert open_files() == before
    names = ("ready", "grandchild") if phase == "drain" else ("ready",)
    await until(lambda: not any(is_running(pid_in(tmp_path, name)) for name in names))


@pytest.mark.parametrize(
    ("program", "output", "errors", "status", "kind"),
    [
        ("codex", "", "Error: 401 Unauthorized", 1, "auth"),
        ("codex", "", "the author of the rate generator", 1, "upstream"),
        (
            "codex",
            json.dumps({"type": "turn.failed", "error": {"message": "429 Too Many Requests"}}),
            "",
            0,
            "rate-limit",
        ),
        ("codex", "", "Not logged in. Run codex login", 1, "missing-auth"),
        ("codex", "", "ERROR: something", 0, "upstream"),
        ("codex", "not json", "", -9, "upstream"),
        ("gemini-cli", "[API Error: RESOURCE_EXHAUSTED]", "", 0, "rate-limit"),
        ("gemini-cli", json.dumps({"error": {"message": "API key not valid"}}), "", 1, "auth"),
        ("gemini-cli", gemini_document("[API Error: fetch]"), "", 0, "upstream"),
        ("gemini-cli", LONG, "TypeError: fetch failed", 1, "network"),
        ("gemini-cli", "", "Please set an Auth method in settings", 41, "missing-auth"),
        ("gemini-cli", "", "ModelNotFoundError: x", 1, "not-found"),
    ],
)
def test_what_a_program_says(program: str, output: str, errors: str, status: int, kind: str) -> None:
    from embedkit.ask import AskFailed

    with pytest.raises(AskFailed) as caught:
        read_output(program, "cli", output, errors, status)  # type: ignore[arg-type]
    assert caught.value.kind == kind
    assert "generator" not in str(caught.value)


@pytest.mark.parametrize("program", ["codex", "gemini-cli"])
def test_nothing_at_all_is_blank(program: str) -> None:
    assert read_output(program, "cli", "", "", 0).text == ""  # type: ignore[arg-type]


def test_the_environment_is_scrubbed() -> None:
    environ = {
        "PATH": "/bin", "HOME": "/h", "OPENAI_API_KEY": "1", "XAI_API_KEY": "2", "GITHUB_TOKEN": "3",
        "DB_PASSWORD": "4", "AWS_SECRET_ACCESS": "5", "MY_OWN_KEY": "6", "SSH_AUTH_SOCK": "7",
        "AUTHOR": "me", "LANG": "C",
    }  # fmt: skip
    assert set(scrubbed("codex", environ, "MY_OWN_KEY")) == {
        "PATH", "HOME", "OPENAI_API_KEY", "MY_OWN_KEY", "AUTHOR", "LANG",
    }  # fmt: skip
