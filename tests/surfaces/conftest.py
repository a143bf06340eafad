from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import Shell
from processes import ForkServer


@pytest.fixture
def shell(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shell:
    folder = tmp_path / "here"
    folder.mkdir()
    return Shell(folder, capsys, monkeypatch)


@pytest.fixture(scope="session")
def server() -> Iterator[ForkServer]:
    with ForkServer() as started:
        yield started
