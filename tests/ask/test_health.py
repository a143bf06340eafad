"""A member whose engine is known to be down is unavailable to a fan-out, for as long as that is news."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from asking_world import answer, failure, provider_of
from trio.testing import MockClock

from embedkit.ask import ask_all, ask_one, panel
from embedkit.ask.health import learn_health
from embedkit.engine import open_engine
from embedkit.settings import ProbeSettings, ProviderSettings, Settings, StoreSettings
from embedkit.testing import Rule, open_scripted_engine
from embedkit.testing.engine_rules import Behaviour, always, status


@pytest.fixture
def autojump_clock() -> MockClock:
    # Real sockets, and the store's threads: a moment's grace before the clock jumps.
    return MockClock(autojump_threshold=0.3)


def settings(folder: Path, described: ProviderSettings) -> Settings:
    return Settings(
        providers={"box": described},
        store=StoreSettings(path=folder / "kb.sqlite3"),
        probe=ProbeSettings(failing=30.0),
    )


@pytest.mark.parametrize(("code", "kind"), [(401, "auth"), (502, "upstream")])
async def test_a_degraded_engine_is_not_asked(code: int, kind: str, tmp_path: Path, autojump_clock: MockClock) -> None:
    async with (
        open_scripted_engine(rules=[Rule(lambda request: not request.is_chat, status(code))]) as served,
        open_engine(settings(tmp_path, provider_of("openai-compatible", served)), environ={}) as engine,
    ):
        assert (await engine.probe("box")).verdict == "degraded"
        requests = served.log.requests
        assert "degraded, as a probe found" in panel(engine).unavailable["box"]
        assert panel(engine).asked == ()
        replies = await ask_all(engine, "q")
        failed = failure(replies.results[0])
        assert (failed.kind, failed.attempts) == (kind, 0)
        assert replies.unavailable == {"box": failed.message}
        assert "KB_VECTOR_EMBED_" in failed.message
        assert served.log.requests == requests
        # Whoever asks for it by name is served.
        assert answer(await ask_one(engine, "q", "box")).attempts == 1
        # What was news is no news any more.
        await trio.sleep(31.0)
        assert answer((await ask_all(engine, "q")).results[0]).attempts == 1


async def test_an_engine_that_gives_no_embeddings_may_chat(tmp_path: Path, autojump_clock: MockClock) -> None:
    no_vectors = Behaviour(body=b'{"data": []}')
    async with (
        open_scripted_engine(rules=[Rule(lambda request: not request.is_chat, no_vectors)]) as served,
        open_engine(settings(tmp_path, provider_of("openai-compatible", served)), environ={}) as engine,
    ):
        assert (await engine.probe("box")).verdict == "degraded"
        assert answer((await ask_all(engine, "q")).results[0]).attempts == 1


async def test_a_process_learns_what_another_found(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_scripted_engine(rules=[Rule(always, status(502))]) as served:
        described = settings(tmp_path, provider_of("ollama", served))
        async with open_engine(described, environ={}) as engine:
            await engine.probe("box")
        async with open_engine(described, environ={}) as engine:
            assert not panel(engine).unavailable
            await learn_health(engine)
            assert "box" in panel(engine).unavailable


async def test_without_a_knowledge_base_none_is_made(tmp_path: Path) -> None:
    async with (
        open_scripted_engine() as served,
        open_engine(settings(tmp_path, provider_of("ollama", served)), environ={}) as engine,
    ):
        await learn_health(engine)
    assert not (tmp_path / "kb.sqlite3").exists()
