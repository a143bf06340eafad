"""Files for grok, over real sockets: uploaded, asked about, and removed however it ends."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from asking_world import KEYS, answer, asking, failure
from scripted_sockets import Heard, Say, Server, serving, whole
from trio.testing import MockClock, wait_all_tasks_blocked

from embedkit.ask import Failure, Result, ask_one, uploads
from embedkit.ask.xai_files import LARGEST_FILE, write_upload
from embedkit.settings import ProviderSettings


@pytest.fixture
def autojump_clock() -> MockClock:
    # Real sockets, and threads that read files: a moment's grace before the clock jumps.
    return MockClock(autojump_threshold=0.2)


@attrs.define(eq=False)
class Xai:
    """What stands for api.x.ai: its files, and how long or how it answers each path."""

    files: dict[str, bytes] = attrs.field(factory=dict)
    uploads: int = 0
    waits: dict[str, float] = attrs.field(factory=dict)
    refuses: dict[str, bytes] = attrs.field(factory=dict)

    async def script(self, request: Heard, say: Say) -> None:
        path = "remove" if request.method == "DELETE" else request.path.rpartition("/")[2]
        await trio.sleep(self.waits.get(path, 0.0))
        if path == "files":
            self.uploads += 1
        if path in self.refuses:
            await say(self.refuses[path])
        elif path == "remove":
            del self.files[request.path.rpartition("/")[2]]
            await say(whole({"deleted": True}))
        elif path == "files":
            name = f"file-{self.uploads}"
            self.files[name] = request.body
            await say(whole({"id": name, "object": "file"}))
        else:
            assert path == "responses"
            named = [part.get("file_id") for part in request.document["input"][0]["content"]]
            assert set(named) - {None} == set(self.files)
            message = {"type": "message", "content": [{"type": "output_text", "text": f"I read {len(named) - 1}."}]}
            usage = {"input_tokens": 5, "output_tokens": 6}
            output = [{"type": "reasoning", "summary": []}, message]
            await say(whole({"id": "resp-1", "model": "grok-x", "output": output, "usage": usage}))


@asynccontextmanager
async def grok(xai: Xai, **more: Any) -> AsyncGenerator[tuple[Server, Callable[..., Any]]]:
    environ = {**KEYS, **more.pop("environ", {})}
    ask_settings = {key: more.pop(key) for key in ("upload_timeout",) if key in more}
    async with serving(xai.script) as server:
        described = ProviderSettings(kind="grok", base_url=server.base_url, model="grok-x", **more)
        async with asking({"grok": described}, environ=environ, **ask_settings) as engine:

            async def ask(*files: Path, deadline: float | None = None) -> Result:
                return await ask_one(engine, "What is in them?", "grok", files=files, deadline=deadline)

            yield server, ask


@pytest.fixture
def two(tmp_path: Path) -> tuple[Path, Path]:
    (tmp_path / "a.txt").write_text("first")
    (tmp_path / 'b "x".md').write_text("second")
    return tmp_path / "a.txt", tmp_path / 'b "x".md'


async def test_files_are_uploaded_asked_about_and_removed(two: tuple[Path, Path]) -> None:
    xai = Xai()
    async with grok(xai) as (server, ask):
        said = answer(await ask(*two))
    assert (said.text, said.model, said.thread) == ("I read 2.", "grok-x", "resp-1")
    assert said.usage is not None
    assert (said.usage.prompt, said.usage.answer) == (5, 6)
    assert [(one.method, one.path) for one in server.heard] == [
        ("POST", "/v1/files"),
        ("POST", "/v1/files"),
        ("POST", "/v1/responses"),
        ("DELETE", "/v1/files/file-1"),
        ("DELETE", "/v1/files/file-2"),
    ]
    first = server.heard[0]
    assert first.headers["authorization"] == "Bearer xai-secret-key"
    assert first.headers["content-type"].startswith("multipart/form-data; boundary=")
    assert first.body.index(b"expires_after") < first.body.index(b'name="file"; filename="a.txt"')
    assert b"\r\n\r\nfirst\r\n--" in first.body
    assert b'filename="b _x_.md"' in server.heard[1].body
    assert not xai.files


async def test_without_files_nothing_is_uploaded() -> None:
    async def script(request: Heard, say: Say) -> None:
        assert request.path == "/v1/chat/completions"
        await say(whole({"choices": [{"message": {"content": "It is fair."}}]}))

    async with serving(script) as server:
        described = ProviderSettings(kind="grok", base_url=server.base_url, model="g")
        async with asking({"grok": described}) as engine:
            assert answer(await ask_one(engine, "q", "grok")).text == "It is fair."


@pytest.mark.parametrize("kind", ["openai-compatible", "openrouter", "ollama"])
async def test_others_take_no_files(kind: str, two: tuple[Path, Path]) -> None:
    described = ProviderSettings(kind=kind, base_url="http://127.0.0.1:9/v1", model="m")  # type: ignore[arg-type]
    async with asking({"box": described}) as engine:
        failed = failure(await ask_one(engine, "q", "box", files=two))
    assert failed.kind == "config"


async def test_what_cannot_be_read_is_known_before_anything_is_sent(two: tuple[Path, Path], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    large = tmp_path / "large"
    with large.open("wb") as file:
        file.truncate(LARGEST_FILE + 1)
    xai = Xai()
    async with grok(xai) as (server, ask):
        for path, kind in (
            (tmp_path / "gone", "file-read"),
            (tmp_path, "file-read"),
            (tmp_path / "pipe", "file-read"),
            (large, "file-too-large"),
        ):
            failed = failure(await ask(two[0], path))
            assert (failed.kind, failed.attempts, failed.retryable) == (kind, 1, False)
            assert str(path) in failed.message
        assert not server.heard


def refusal(status: int) -> bytes:
    return whole({"error": {"message": "no"}}, status)


@pytest.mark.parametrize(
    ("reply", "kind", "attempts"),
    [
        (refusal(413), "file-too-large", 1),
        (refusal(400), "file-upload", 1),
        (refusal(415), "file-upload", 1),
        (refusal(404), "file-upload", 1),
        (whole({"object": "file"}), "file-upload", 1),
        (whole({"id": "../x"}), "file-upload", 1),
        (refusal(401), "auth", 1),
        (refusal(429), "rate-limit", 2),
        (refusal(500), "upstream", 2),
        (whole([]), "parse", 1),
    ],
)
async def test_an_upload_that_is_refused(
    reply: bytes, kind: str, attempts: int, two: tuple[Path, Path], autojump_clock: MockClock
) -> None:
    xai = Xai(refuses={"files": reply})
    async with grok(xai) as (server, ask):
        failed = failure(await ask(*two))
    assert (failed.kind, failed.attempts) == (kind, attempts)
    assert [one.path for one in server.heard] == ["/v1/files"] * attempts


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (refusal(401), "auth"),
        (refusal(400), "config"),
        (whole({"error": {"code": 429, "message": "slow"}}), "rate-limit"),
        (whole({"status": "incomplete", "output": []}), "truncated"),
        (whole({"output": []}), "empty"),
        (whole({"output": "?"}), "parse"),
        (whole({}), "parse"),
    ],
)
async def test_a_question_that_fails_leaves_no_file(
    reply: bytes, kind: str, two: tuple[Path, Path], autojump_clock: MockClock
) -> None:
    xai = Xai(refuses={"responses": reply})
    async with grok(xai) as (_, ask):
        failed = failure(await ask(*two))
        assert failed.kind == kind
        assert not xai.files


@pytest.mark.parametrize(
    ("settings", "environ", "seconds"),
    [
        ({}, {}, 120.0),
        ({"upload_timeout": 50.0}, {}, 50.0),
        ({"upload_timeout": 50.0}, {"GROK_UPLOAD_TIMEOUT_MS": "7000"}, 7.0),
        ({"upload_timeout": 50.0}, {"GROK_UPLOAD_TIMEOUT_MS": " "}, 50.0),
    ],
)
async def test_each_upload_has_a_limit_of_its_own(
    settings: dict[str, Any], environ: dict[str, str], seconds: float, two: tuple[Path, Path], autojump_clock: MockClock
) -> None:
    xai = Xai(waits={"files": 1000.0})
    async with grok(xai, environ=environ, **settings) as (_, ask):
        failed: Failure = failure(await ask(*two))
    assert (failed.kind, failed.attempts) == ("timeout", 1)
    assert failed.elapsed == pytest.approx(seconds)
    rung = "GROK_UPLOAD_TIMEOUT_MS" if seconds == 7.0 else "ask.upload_timeout"
    assert f"a.txt was not uploaded within {seconds:g} s ({rung})" in failed.message


@pytest.mark.parametrize(
    ("settings", "environ"), [({"upload_timeout": 0.0}, {}), ({}, {"GROK_UPLOAD_TIMEOUT_MS": "0"})]
)
async def test_without_a_bound_and_beside_the_questions_limit(
    settings: dict[str, Any], environ: dict[str, str], two: tuple[Path, Path], autojump_clock: MockClock
) -> None:
    xai = Xai(waits={"files": 1000.0, "responses": 100.0})
    async with grok(xai, environ=environ, **settings) as (_, ask):
        said = answer(await ask(*two))
    assert said.elapsed == pytest.approx(2100.0, abs=1.0)


async def test_the_questions_limit_begins_after_the_uploads(two: tuple[Path, Path], autojump_clock: MockClock) -> None:
    xai = Xai(waits={"files": 100.0, "responses": 1000.0})
    async with grok(xai, timeout=30.0) as (_, ask):
        failed = failure(await ask(*two))
        assert failed.kind == "timeout"
        assert failed.elapsed == pytest.approx(230.0, abs=1.0)
        assert "providers.grok.timeout" in failed.message
        assert not xai.files


@pytest.mark.parametrize("phase", ["files", "responses"])
@pytest.mark.parametrize("how", ["cancel", "deadline"])
async def test_cancelling_leaves_no_file_and_no_connection(
    phase: str, how: str, two: tuple[Path, Path], autojump_clock: MockClock
) -> None:
    xai = Xai(waits={phase: 500.0} if phase == "responses" else {"files": 8.0})
    async with grok(xai, timeout=1000.0) as (server, ask):
        if how == "cancel":
            with trio.move_on_after(10.0) as scope:
                await ask(*two)
            assert scope.cancelled_caught
        else:
            failed = failure(await ask(*two, deadline=10.0))
            assert (failed.kind, failed.code) == ("timeout", "DEADLINE_EXCEEDED")
        assert not xai.files
        assert xai.uploads == (1 if phase == "files" else 2)
        await wait_all_tasks_blocked(0.01)
        assert not server.open


async def test_a_removal_that_hangs_is_not_waited_for(two: tuple[Path, Path], autojump_clock: MockClock) -> None:
    xai = Xai(waits={"remove": 500.0})
    async with grok(xai) as (_, ask):
        said = answer(await ask(*two))
    assert said.elapsed == pytest.approx(uploads.REMOVAL_SECONDS)


def test_a_name_cannot_break_out_of_its_header() -> None:
    body = write_upload('x"\r\nEvil: 1\r\n\r\n\\.txt', b"content", "b").body
    assert b'filename="x_Evil: 1_.txt"' in body
