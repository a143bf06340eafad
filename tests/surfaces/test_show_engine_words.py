"""``--show-engine-words``: what an engine says is on standard error for whoever asks, and nowhere else for anybody."""

from __future__ import annotations

import html
import json
import socketserver
import threading
from base64 import b64encode
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from command_line import Shell

WORDS = "the flux capacitor is not aligned"
KEY = "sk-secret-123456"
TEXT = "Vault code <seventeen> 'and' nineteen, and nobody may see it\n"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self._answer(404, {})

    def do_POST(self) -> None:
        text = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["input"][0]
        quoted = [text, repr(text), json.dumps(text), html.escape(text), quote(text), text.encode().hex(), text.split()]
        said = f"{WORDS} (you sent {self.headers['Authorization']} and {quoted} and {b64encode(text.encode())!r})"
        self._answer(418, {"error": {"message": said}})

    def _answer(self, status: int, document: Any) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the library's name for it
        pass


@pytest.fixture
def shell(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    monkeypatch.setenv("BOX_KEY", KEY)
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        (tmp_path / "notes").mkdir()
        (tmp_path / "notes" / "a.txt").write_text(TEXT, "utf-8")
        (tmp_path / "embedkit.toml").write_text(
            f"""version = 1
[providers.box]
kind = "ollama"
base_url = "http://127.0.0.1:{server.server_address[1]}"
model = "m"
api_key_env = "BOX_KEY"
[embedding]
provider = "box"
""",
            "utf-8",
        )
        yield Shell(tmp_path, capsys, monkeypatch)
        server.shutdown()


@pytest.mark.parametrize("command", [("sync", "notes"), ("probe",)])
def test_the_words_are_shown_to_whoever_asks(shell: Shell, command: tuple[str, ...]) -> None:
    ended = shell(*command, "--show-engine-words", "--json")
    assert WORDS in ended.err
    assert "answered 418: " in ended.err
    assert KEY not in ended.err + ended.out
    assert WORDS not in ended.out
    assert json.loads(ended.out)


@pytest.mark.parametrize("command", [("sync", "notes"), ("sync", "notes", "-v"), ("probe",)])
def test_and_to_nobody_else(shell: Shell, command: tuple[str, ...]) -> None:
    ended = shell(*command)
    assert ended.code != 0
    assert WORDS not in ended.err + ended.out
    assert KEY not in ended.err + ended.out
    assert TEXT[:20] not in ended.err + ended.out
    assert not any(word in ended.err + ended.out for word in ("Vault", "seventeen", "nineteen"))
    for form in (quote(TEXT), TEXT.encode().hex(), b64encode(TEXT.encode()).decode()):
        assert form[:24] not in ended.err + ended.out


def test_they_are_not_kept(shell: Shell) -> None:
    shell("sync", "notes", "--show-engine-words")
    assert WORDS not in shell("status").out
    for file in shell.store.parent.iterdir():
        for said in (WORDS, KEY, TEXT, "seventeen"):
            assert said.encode() not in file.read_bytes()
