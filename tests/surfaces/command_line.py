"""Run the command line, in this process or in one of its own."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import pytest

import embedkit
from embedkit.providers import local
from embedkit.surfaces.cli import main

if TYPE_CHECKING:
    from embedkit.providers.provider import Vectors

COMMAND = [sys.executable, "-c", "import sys; from embedkit.surfaces.cli import main; sys.exit(main())"]


@attrs.frozen
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one document on standard output."""
        assert self.out.count("\n") == 1, self.out
        return json.loads(self.out)

    def check_one_line(self, *parts: str) -> None:
        """It said one line, with these parts, and printed no traceback."""
        assert self.err.count("\n") == 1, self.err
        assert self.err.startswith("embedkit: ")
        assert "Traceback" not in self.err
        for part in parts:
            assert part in self.err


class HashModel:
    """Stands for the embedded model, which takes a while to load: vectors come from hashes of the words."""

    dimension = 16

    def embed(self, texts: Sequence[str]) -> Vectors:
        import numpy as np

        vectors = np.zeros((len(texts), self.dimension), np.float32)
        for row, text in enumerate(texts):
            for word in text.encode("utf-8", "replace").lower().split():
                vectors[row, hashlib.sha256(word).digest()[0] % self.dimension] += 1.0
        return vectors


class Shell:
    """Runs commands in this process, in a folder, on a model that is there at once."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self._capsys = capsys
        monkeypatch.setattr(local, "_load", HashModel)
        monkeypatch.chdir(folder)

    @property
    def store(self) -> Path:
        return self.folder / ".embedkit" / "knowledge.sqlite3"

    def __call__(self, *arguments: str | os.PathLike[str]) -> Ended:
        self._capsys.readouterr()
        try:
            code = main([os.fspath(argument) for argument in arguments])
        except SystemExit as left:
            code = int(left.code or 0)
        out, err = self._capsys.readouterr()
        return Ended(code, out, err)


def in_a_process(folder: Path, *arguments: str | bytes | os.PathLike[str], **options: Any) -> Ended:
    """Run a command as a person does."""
    done = subprocess.run(
        [*COMMAND, *arguments], cwd=folder, capture_output=True, timeout=30, check=False, env=environment(), **options
    )
    return Ended(done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace"))


def environment(**more: str) -> dict[str, str]:
    """As a person's shell has it: output is buffered, and text is UTF-8."""
    kept = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    return {**kept, "LC_ALL": "C.UTF-8", "PYTHONPATH": str(Path(embedkit.__file__).parents[1]), **more}


def settings_text(base_url: str, *, capacity: int = 1, batch: int = 1, timeout: float = 60.0) -> str:
    """A settings file whose provider ``box`` is a server."""
    return f"""
version = 1
[providers.box]
kind = "openai-compatible"
base_url = "{base_url}"
model = "scripted"
capacity = {capacity}
timeout = {timeout}
[embedding]
provider = "box"
batch = {batch}
"""
