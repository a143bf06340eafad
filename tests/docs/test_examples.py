"""Every example in README and docs runs, and prints what the page says."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from contextlib import chdir, redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from queue import SimpleQueue

import attrs
import pytest
import trio
from pages import PAGES, ROOT, Block, blocks_of, commands_of, same, shape

from embedkit.settings.structure import settings_from
from embedkit.testing import open_scripted_engine

pytestmark = pytest.mark.skipif(find_spec("wordllama") is None, reason="the pages use the embedded model")

# Where the pages say that a server is, and the model that they say it has.
SERVER = "http://127.0.0.1:8080"
MODEL = "all-minilm"


@attrs.define
class Story:
    """One page on its way through its blocks."""

    folder: Path
    server: str
    namespace: dict[str, object] = attrs.field(factory=lambda: {"__name__": "__main__"})
    printed: str = ""

    def tell(self, block: Block) -> None:
        text = block.text.replace(SERVER, self.server)
        if (name := block.noted("file")) is not None:
            self.write(name, text)
        elif block.noted("prints") is not None:
            assert same(block.text, self.printed)
        elif block.noted("shape") is not None:
            assert shape(json.loads(block.text)) == shape(json.loads(self.printed))
        elif block.language == "python":
            self.run_python(text, block.line)
        elif block.language == "console":
            for command, printed in commands_of(block.text):
                self.run_command(command, printed, int(block.noted("exit") or 0))

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, "utf-8")

    def run_python(self, text: str, line: int) -> None:
        # Blank lines before it, so that a traceback names the page's own lines.
        code = compile("\n" * line + text, "<page>", "exec", dont_inherit=True)
        with chdir(self.folder), redirect_stdout(io.StringIO()) as printed:
            exec(code, self.namespace)
        self.printed = printed.getvalue()

    def run_command(self, command: str, printed: str, code: int) -> None:
        path = os.pathsep.join([str(self.folder / "bin"), os.environ["PATH"]])
        environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}
        ended = subprocess.run(
            command, shell=True, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=60
        )
        assert ended.returncode == code, f"$ {command}\n{ended.stdout}{ended.stderr}"
        assert same(printed, ended.stdout + ended.stderr), f"$ {command}\n{ended.stdout}{ended.stderr}"
        self.printed = ended.stdout


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """A scripted engine in a thread of its own, since commands come from other processes; its address."""
    ready: SimpleQueue[tuple[str, trio.lowlevel.TrioToken, trio.CancelScope]] = SimpleQueue()

    async def serve() -> None:
        async with open_scripted_engine(models=(MODEL,)) as engine:
            with trio.CancelScope() as scope:
                ready.put((engine.base_url, trio.lowlevel.current_trio_token(), scope))
                await trio.sleep_forever()

    thread = threading.Thread(target=trio.run, args=(serve,))
    thread.start()
    address, token, scope = ready.get()
    yield address
    token.run_sync_soon(scope.cancel)
    thread.join()


@pytest.fixture
def story(tmp_path: Path, server: str) -> Story:
    told = Story(tmp_path, server)
    entry = "import sys; from embedkit.surfaces.cli import main; sys.exit(main(sys.argv[1:]))"
    told.write("bin/embedkit", f"#!{sys.executable}\n{entry}\n")
    (tmp_path / "bin" / "embedkit").chmod(0o755)
    return told


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_does_what_it_says(page: Path, story: Story) -> None:
    for block in blocks_of(page):
        if block.noted("not run") is None:
            try:
                story.tell(block)
            except AssertionError as error:
                raise AssertionError(f"{page.name}:{block.line}: {error}") from error


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_toml_block_is_a_settings_file(page: Path) -> None:
    for block in blocks_of(page):
        if block.language == "toml":
            settings_from(tomllib.loads(block.text))
