"""A real llama.cpp server, with a tiny model of random weights: from ``embedkit.toml`` to a search, and what breaks."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trio
from llama_server import LlamaServer
from trees import embedkit, numbered, opened, write_files, write_settings

from embedkit.errors import ContentRefused, UsageError
from embedkit.providers.http import HttpEndpoint, open_exchange
from embedkit.providers.json_body import dump_json, load_json
from embedkit.sweep.outcome import RepositoryReport
from embedkit.sweep.progress import Progress
from embedkit.sweep.sweep import open_sweep


def test_sync_and_search_end_to_end(tmp_path: Path, llama: LlamaServer) -> None:
    write_settings(tmp_path, llama)
    write_files(tmp_path, numbered(30) | {"bread.md": "# Bread\n\nKnead the dough, then let it rest for an hour.\n"})

    first = embedkit(tmp_path, "sync", "--json")
    assert (first.code, first.repository["outcome"], first.errors) == (0, "complete", "")
    assert (first.repository["documents"], first.repository["embedded"]) == (31, first.repository["chunks"])
    again = embedkit(tmp_path, "sync", "--all", "--json")
    assert (again.code, again.repository["provider_calls"], again.repository["embedded"]) == (0, 0, 0)

    for mode in ("vector", "hybrid"):
        found = embedkit(tmp_path, "search", "Knead the dough, then let it rest for an hour.", "--mode", mode, "--json")
        assert found.code == 0, found.errors
        assert found.document["hits"][0]["path"] == "bread.md", mode
    (tmp_path / "tree" / "bread.md").unlink()
    assert embedkit(tmp_path, "sync", "--all", "--json").repository["deleted"] == 1
    assert embedkit(tmp_path, "status", "--json").document["access"] == {"ready": 1, "degraded": 0}


def test_a_model_that_is_not_there_is_refused_by_name(tmp_path: Path, llama: LlamaServer) -> None:
    write_settings(tmp_path, llama, model="another")
    write_files(tmp_path, numbered(1))
    ended = embedkit(tmp_path, "sync")
    assert ended.code == 2
    assert "does not have the model 'another'; it has 'tiny'" in ended.errors


def test_a_server_that_is_not_there_is_said_to_be_absent(tmp_path: Path, llama: LlamaServer) -> None:
    write_settings(tmp_path, llama)
    write_files(tmp_path, numbered(5))
    llama.kill()
    ended = embedkit(tmp_path, "sync", "--json")
    assert (ended.code, ended.repository["outcome"]) == (3, "deferred")
    assert ended.repository["code"] == "KB_VECTOR_EMBED_CONNECTION_REFUSED"
    assert (ended.repository["embedded"], ended.repository["outstanding"]) == (0, 5)
    assert "nobody listens there" in ended.repository["reason"]


@pytest.mark.parametrize(("window", "batch", "status"), [(4096, 128, 500), (256, 4096, 400)])
async def test_an_input_over_the_window_is_refused_as_such_and_not_cut(
    window: int, batch: int, status: int, tmp_path: Path, tiny_model: Path
) -> None:
    # llama.cpp words it in two ways: 500 for the physical batch, 400 for the window of a slot.
    server = LlamaServer(tiny_model, window=window, batch=batch)
    server.start()
    try:
        async with opened(write_settings(tmp_path, server)) as engine:
            for texts, index in ((["x" * 300], 0), (["short", "x" * 300], None)):
                with pytest.raises(ContentRefused) as caught:
                    await engine.embed(texts)
                assert caught.value.durable_code == "KB_VECTOR_EMBED_INPUT_TRUNCATED"
                assert (caught.value.status, caught.value.input_index, caught.value.attempts) == (status, index, 1)
                assert "x" * 24 not in str(caught.value)
            assert (await engine.embed(["short"])).vectors.shape == (1, 32)
    finally:
        server.kill()


@pytest.mark.parametrize(("window", "batch"), [(4096, 128), (512, 4096)])
def test_a_chunk_over_the_window_is_stored_in_parts(window: int, batch: int, tmp_path: Path, tiny_model: Path) -> None:
    server = LlamaServer(tiny_model, window=window, batch=batch)
    server.start()
    lines = [f"{number:02} " + "x" * 40 for number in range(20)]
    try:
        write_settings(tmp_path, server)
        texts = {"lines.txt": "\n".join(lines), "wide.txt": "y" * 700, "a.txt": "short\n", "b.txt": "shorter\n"}
        write_files(tmp_path, texts)
        ended = embedkit(tmp_path, "sync", "--json")
        assert (ended.code, ended.repository["outcome"], ended.repository["fenced"]) == (0, "complete", 0)
        again = embedkit(tmp_path, "sync", "--all", "--json")
        assert (again.code, again.repository["provider_calls"]) == (0, 0)

        found = embedkit(tmp_path, "search", "07", "--mode", "text", "--json").document["hits"]
        assert [hit["path"] for hit in found] == ["lines.txt"]
        first, last = found[0]["lines"]
        assert first <= 8 <= last < first + len(lines) - 1
        assert found[0]["text"] == "\n".join(lines[first - 1 : last])
        found = embedkit(tmp_path, "search", "short", "--json", "-k", "50").document["hits"]
        # Parts with the same text are one hit, which says where else it stands.
        assert sum(1 + len(hit["also"]) for hit in found) == again.repository["chunks"] > 4
        wide = [hit for hit in found if hit["path"] == "wide.txt"]
        assert sum(hit["text"].count("y") * (1 + len(hit["also"])) for hit in wide) == 700
    finally:
        server.kill()


async def test_it_gives_base64_and_the_numbers_are_the_same(tmp_path: Path, llama: LlamaServer) -> None:
    texts = ["one", "two of them", ""]
    request: dict[str, object] = {"model": "tiny", "input": texts}
    async with open_exchange(HttpEndpoint(llama.openai_url)) as exchange:
        as_asked = load_json(
            (await exchange.send("POST", "/embeddings", dump_json({**request, "encoding_format": "base64"}))).body
        )
        as_numbers = load_json((await exchange.send("POST", "/embeddings", dump_json(request))).body)
    assert isinstance(as_asked, dict)
    assert isinstance(as_numbers, dict)
    assert all(isinstance(item["embedding"], str) for item in as_asked["data"])
    async with opened(write_settings(tmp_path, llama)) as engine:
        bought = await engine.embed(texts)
    expected = np.array([item["embedding"] for item in as_numbers["data"]], dtype=np.float32)
    np.testing.assert_allclose(bought.vectors, expected, atol=1e-6)


async def test_many_callers_over_its_slots_each_get_their_own(tmp_path: Path, llama: LlamaServer) -> None:
    texts = [f"{'word ' * (number % 7)}number {number}" for number in range(48)]
    async with opened(write_settings(tmp_path, llama)) as engine:
        alone = [(await engine.embed([text])).vectors[0] for text in texts]
        together: dict[int, np.ndarray[Any, Any]] = {}
        most = 0

        async def caller(number: int) -> None:
            nonlocal most
            bought = await engine.embed([texts[number]], priority="interactive" if number % 2 else "batch")
            together[number] = bought.vectors[0]
            most = max(most, engine.lane().statistics().weight_in_flight)

        async with trio.open_nursery() as nursery:
            for number in range(len(texts)):
                nursery.start_soon(caller, number)
        assert most <= llama.slots
        # What else is in its batch changes a vector's last digits, so each is told by which one it is nearest to.
        nearest = np.argmax([together[number] for number in range(len(texts))] @ np.transpose(alone), axis=1)
        assert nearest.tolist() == list(range(len(texts)))
        totals = engine.lane().statistics().totals
        assert (totals.succeeded, totals.offered) == (96, 96)


async def test_after_a_storm_of_cancels_a_good_request_succeeds(tmp_path: Path, llama: LlamaServer) -> None:
    draw = random.Random(4)
    async with opened(write_settings(tmp_path, llama)) as engine:
        await engine.embed(["warm"])

        async def leave(seconds: float) -> None:
            with trio.move_on_after(seconds):
                await engine.embed(["unwanted " * 40], priority="interactive")

        for _ in range(10):
            async with trio.open_nursery() as nursery:
                for _ in range(20):
                    nursery.start_soon(leave, draw.uniform(0.0, 0.02))
        with trio.fail_after(5.0):
            assert (await engine.embed(["good"])).vectors.shape == (1, 32)
        totals = engine.lane().statistics().totals
        assert totals.offered == totals.accounted == 202


async def sync_until(settings: Path, kill: LlamaServer | None, after: int) -> RepositoryReport:
    """A sweep, in the middle of which, when so many vectors are stored, the server is killed."""

    def watch(progress: Progress) -> None:
        if kill is not None and progress.tally.embedded >= after:
            kill.kill()

    async with opened(settings) as engine, open_sweep(engine, all=True, on_progress=watch) as sweep:
        (report,) = (await sweep.run()).repositories
    return report


async def test_a_server_that_is_killed_in_the_middle_and_started_again(tmp_path: Path, llama: LlamaServer) -> None:
    settings = write_settings(tmp_path, llama, capacity=1)
    write_files(tmp_path, numbered(120))

    broken = await sync_until(settings, llama, 40)
    assert broken.outcome == "deferred"
    assert broken.code in ("KB_VECTOR_EMBED_CONNECTION_REFUSED", "KB_VECTOR_EMBED_TRANSPORT_CLOSED")
    assert broken.attribution is not None
    assert 40 <= broken.embedded < 120
    assert broken.outstanding == 120 - broken.embedded
    assert broken.chunks == broken.embedded  # what was bought serves already

    llama.start()  # at the same address
    mended = await sync_until(settings, None, 0)
    assert (mended.outcome, mended.code, mended.outstanding) == ("complete", None, 0)
    assert broken.embedded + mended.embedded == mended.chunks == 120  # nothing was bought twice


async def test_another_model_on_the_same_port_is_not_mixed_in(
    tmp_path: Path, llama: LlamaServer, tiny_model: Path
) -> None:
    settings = write_settings(tmp_path, llama)
    write_files(tmp_path, numbered(3))
    assert (await sync_until(settings, None, 0)).outcome == "complete"
    llama.kill()
    other = LlamaServer(tiny_model, alias="other", port=llama.port)
    other.start()
    try:
        async with opened(settings) as engine:
            with pytest.raises(UsageError, match="does not have the model 'tiny'; it has 'other'"):
                await engine.search("text", tenant="acme")
    finally:
        other.kill()


def test_a_real_model_finds_what_is_meant(tmp_path: Path, real_model: Path) -> None:
    write_files(
        tmp_path,
        {
            "bread.md": "# Bread\n\nKnead the dough, let it rise, and bake it until the crust is brown.\n",
            "orbit.md": "# Orbit\n\nA satellite falls around the planet; its speed keeps it from coming down.\n",
            "tax.md": "# Tax\n\nIncome above the allowance is charged at the basic rate, to be paid by January.\n",
        },
    )
    server = LlamaServer(real_model, alias="minilm", window=512, batch=512)
    server.start()
    try:
        write_settings(tmp_path, server)
        assert embedkit(tmp_path, "sync", "--json").repository["outcome"] == "complete"
        for query, path in (
            ("how do I make a loaf", "bread.md"),
            ("why does the moon not drop from the sky", "orbit.md"),
            ("what do I owe the government on my salary", "tax.md"),
        ):
            found = embedkit(tmp_path, "search", query, "--mode", "vector", "--json")
            assert found.document["hits"][0]["path"] == path
    finally:
        server.kill()
