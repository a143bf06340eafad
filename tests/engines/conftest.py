from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from llama_server import LlamaServer
from tiny_bert import write_tiny_bert
from tiny_llama import write_tiny_llama

ROOT = Path(__file__).parents[2]
REAL_MODEL = Path(os.environ.get("EMBEDKIT_TEST_MODEL") or ROOT.parent / "shared" / "models" / "minilm-q8_0.gguf")


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of random weights, written for this run."""
    for package in ("xllamacpp", "gguf"):
        if find_spec(package) is None:
            pytest.skip(f"{package} is not installed, so no llama.cpp server can be started")
    return write_tiny_bert(tmp_path_factory.mktemp("models") / "tiny.gguf")


@pytest.fixture(scope="session")
def chat_model(tiny_model: Path) -> Path:
    """A chat model of random weights, written for this run beside the one that embeds."""
    return write_tiny_llama(tiny_model.with_name("tiny-chat.gguf"))


@pytest.fixture
def chat_llama(chat_model: Path) -> Iterator[LlamaServer]:
    """A llama.cpp server that chats."""
    server = LlamaServer(chat_model, window=2048, embeds=False)
    server.start()
    yield server
    server.kill()


@pytest.fixture(scope="session")
def real_model(tiny_model: Path) -> Path:
    """A model that knows what words mean."""
    if not REAL_MODEL.is_file():
        pytest.skip("no real model is at hand; name a GGUF file in EMBEDKIT_TEST_MODEL")
    return REAL_MODEL


@pytest.fixture
def llama(tiny_model: Path) -> Iterator[LlamaServer]:
    """A llama.cpp server with the tiny model and four slots."""
    server = LlamaServer(tiny_model)
    server.start()
    yield server
    server.kill()
