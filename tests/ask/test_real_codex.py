"""The real ``codex`` command against an engine on loopback. It is an npm package (``npm install @openai/codex``), so it
runs where ``codex`` is on PATH, or where ``EMBEDKIT_TEST_CODEX`` names it.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
import trio
from asking_world import answer, asking, failure
from child_programs import is_running
from fakes import until
from scripted_sockets import END, Heard, Say, Script, begun, piece, serving, whole

from embedkit.ask import Result, ask_one
from embedkit.settings import ProviderSettings

CODEX = os.environ.get("EMBEDKIT_TEST_CODEX") or shutil.which("codex")

# It retries by itself, and takes seconds to start: real seconds, in real time.
pytestmark = [pytest.mark.soak, pytest.mark.skipif(CODEX is None, reason="codex is not on PATH (an npm package)")]


def home_of(folder: Path, base_url: str) -> dict[str, str]:
    """An environment in which ``codex`` knows one engine, and nobody else."""
    assert CODEX is not None
    (folder / "bin").mkdir()
    (folder / "bin" / "codex").symlink_to(Path(CODEX).resolve())
    (folder / "config.toml").write_text(
        f"""
model = "scripted"
model_provider = "box"
check_for_update_on_startup = false
[model_providers.box]
name = "box"
base_url = "{base_url}"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
[analytics]
enabled = false
"""
    )
    return {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "HOME": str(folder), "CODEX_HOME": str(folder)}


def saying(text: str) -> Script:
    """A model that says ``text``, in the language of OpenAI's Responses API."""
    message = {"type": "message", "role": "assistant", "id": "m-1", "content": [{"type": "output_text", "text": text}]}
    usage = {"input_tokens": 11, "output_tokens": 7, "total_tokens": 18}
    documents = (
        {"type": "response.created", "response": {"id": "r-1"}},
        {"type": "response.output_item.done", "output_index": 0, "item": message},
        {"type": "response.completed", "response": {"id": "r-1", "usage": usage}},
    )

    async def script(request: Heard, say: Say) -> None:
        if not request.path.endswith("/responses"):
            await say(whole({"models": []}, 404))
            return
        await say(begun())
        for one in documents:
            await say(piece(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n".encode()))
        await say(END)

    return script


async def asked(folder: Path, script: Script, timeout: float = 50.0) -> tuple[Result, list[Heard]]:
    async with serving(script) as server:
        environ = home_of(folder, server.base_url)
        settings = ProviderSettings(kind="codex", timeout=timeout)
        async with asking({"codex": settings}, environ=environ, recovery_grace=0.0) as engine:
            return await ask_one(engine, "Is the lane fair?", "codex"), server.heard


async def test_it_answers(tmp_path: Path) -> None:
    result, heard = await asked(tmp_path, saying("It is fair.\n\nVERDICT: APPROVE"))
    said = answer(result)
    assert (said.text, said.attempts) == ("It is fair.\n\nVERDICT: APPROVE", 1)
    assert said.thread
    assert said.usage is not None
    assert (said.usage.prompt, said.usage.answer) == (11, 7)
    (request,) = [one for one in heard if one.path.endswith("/responses")]
    assert "Is the lane fair?" in json.dumps(request.document["input"])


@pytest.mark.parametrize(("status", "kind"), [(401, "auth"), (429, "rate-limit"), (500, "upstream")])
async def test_its_engines_refusals_have_their_kind(status: int, kind: str, tmp_path: Path) -> None:
    async def script(request: Heard, say: Say) -> None:
        await say(whole({"error": {"message": "no", "code": "x"}}, status))

    result, _ = await asked(tmp_path, script)
    assert failure(result).kind == kind, failure(result)


async def test_cancelling_ends_it_and_what_it_started(tmp_path: Path) -> None:
    reached = trio.Event()

    async def script(request: Heard, say: Say) -> None:
        if request.path.endswith("/responses"):
            reached.set()
        await trio.sleep_forever()

    def children() -> list[int]:
        """Processes whose home is this test's."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    environ = (entry / "environ").read_bytes()
                except OSError:
                    continue
                if f"CODEX_HOME={tmp_path}".encode() in environ and is_running(int(entry.name)):
                    found.append(int(entry.name))
        return found

    async with trio.open_nursery() as nursery:
        nursery.start_soon(asked, tmp_path, script)
        await reached.wait()
        assert children()
        nursery.cancel_scope.cancel()
    await until(lambda: not children())
