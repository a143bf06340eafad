"""After every kind of failure neither the key nor a text is to be found: in no output, no log, no error, no table.

The engine echoes both, in six encodings, wherever a reply has room for words: its body, its headers, its models' names.
"""

from __future__ import annotations

import base64
import html
import json
import logging
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import trio

from embedkit.admission.waiting import Priority
from embedkit.engine import open_engine
from embedkit.errors import EmbedkitError
from embedkit.settings import (
    EmbeddingSettings,
    ProviderSettings,
    RepositorySettings,
    Settings,
    StoreSettings,
    SweepSettings,
    TenantSettings,
)
from embedkit.sweep.sweep import open_sweep
from embedkit.testing.engine_rules import Behaviour, Rule, always
from embedkit.testing.scripted_engine import open_scripted_engine

KEY = "Zk-77/secret+of&us"
TEXT = 'Vault code <seven> "four" & nineteen; ümlaut, don\'t tell anybody at all 8675309'

ENCODINGS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "percent": lambda text: quote(text, safe=""),
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "hex": lambda text: text.encode().hex(),
    "json": lambda text: json.dumps(text)[1:-1],
    "entities": html.escape,
}


def echo() -> str:
    """Both secrets in every encoding, among words that are known."""
    said = " ".join(f"[{encode(KEY)}] <{encode(TEXT)}>" for encode in ENCODINGS.values())
    return f"maximum context length is 512 tokens {said} {TEXT!r} {TEXT.split()} Bearer {KEY}"


def error(**more: Any) -> bytes:
    return json.dumps({"error": {"message": echo(), "code": KEY, "type": TEXT, "param": "input", **more}}).encode()


HEADERS = tuple(
    (name, quote(f"{KEY} {TEXT}"))
    for name in ("Retry-After", "Location", "WWW-Authenticate", "x-ratelimit-reset-requests", "retry-after-ms")
)


def refusal(status: int, body: bytes | None = None, **more: Any) -> Behaviour:
    return Behaviour(status=status, body=error() if body is None else body, headers=HEADERS, computes=False, **more)


def rewritten(**changes: Any) -> Behaviour:
    """The right answer, changed."""
    if "data" in changes:
        changes["embeddings"] = [item["embedding"] for item in changes["data"]]
    return Behaviour(rewrite=lambda body: json.dumps({**json.loads(body), **changes}).encode())


FAILURES: dict[str, Behaviour] = {
    **{str(status): refusal(status) for status in (400, 401, 402, 403, 404, 408, 413, 422, 424, 425, 429)},
    **{str(status): refusal(status) for status in (500, 501, 502, 503, 504, 520)},
    "redirect": refusal(307),
    "text": refusal(500, echo().encode()),
    "page": refusal(502, f"<html><title>{echo()}</title>{echo()}".encode()),
    "fastapi": refusal(
        422, json.dumps({"detail": [{"loc": ["body", KEY, TEXT], "msg": echo(), "input": TEXT}]}).encode()
    ),
    "google": refusal(400, json.dumps([{"error": {"message": echo(), "status": KEY, "details": [TEXT]}}]).encode()),
    "packed": Behaviour(status=400, body=error(), headers=(("Content-Encoding", quote(KEY)),), computes=False),
    "200 with an error": Behaviour(body=error(), computes=False),
    "200 with a page": Behaviour(body=f"<html>{echo()}".encode(), computes=False),
    "200 with text": Behaviour(body=json.dumps(echo()).encode(), computes=False),
    "200 with a message": Behaviour(body=json.dumps({"message": echo(), "data": None}).encode(), computes=False),
    "a packed answer": Behaviour(headers=(("Content-Encoding", quote(TEXT)),)),
    "no vectors": rewritten(data=[]),
    "text for vectors": rewritten(data=[{"index": 0, "embedding": TEXT}]),
    "text for an index": rewritten(data=[{"index": KEY, "embedding": [TEXT]}]),
    "a number for an index": rewritten(data=[{"index": 8675309, "embedding": [TEXT]}]),
    "cut": Behaviour(sends="half", then="close"),
    "reset": Behaviour(sends="nothing", then="reset"),
}


class Lines:
    """Whatever the ledger says of a ticket."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("_") or name == "lines":
            return super().__getattribute__(name)
        return lambda *given, **named: self.lines.append(f"{name} {given!r} {named!r}")


def settings_for(folder: Path, url: str, kind: str) -> Settings:
    root = folder / "repository"
    root.mkdir()
    (root / "vault.txt").write_text(TEXT + "\n", "utf-8")
    box = ProviderSettings(
        kind=kind,  # type: ignore[arg-type]  # a kind's name
        base_url=url,
        model="scripted",
        api_key_env="BOX_KEY",
        headers={"x-token": "${BOX_KEY}"},
        query={"token": "${BOX_KEY}"},
    )
    return Settings(
        providers={"box": box},
        embedding=EmbeddingSettings(provider="box"),
        store=StoreSettings(path=folder / "store" / "k.sqlite3"),
        sweep=SweepSettings(slice=86_400.0),
        tenants=(TenantSettings(name="acme", repositories=(RepositorySettings(name="one", path=root),)),),
    )


def chain(error: BaseException) -> Iterator[str]:
    waiting = [error]
    while waiting:
        current = waiting.pop()
        if isinstance(current, EmbedkitError) or current is error:
            yield f"{current} {current!r} {vars(current)!r}"
        waiting += [other for other in (current.__cause__, current.__context__) if other is not None]


def tables_of(path: Path) -> Iterator[str]:
    with closing(sqlite3.connect(path)) as connection:
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            for row in connection.execute(f"SELECT * FROM {name}"):
                yield f"{name} {row!r}"


def check(where: str, said: str) -> None:
    for encoding, encode in ENCODINGS.items():
        assert encode(KEY) not in said, f"the key, {encoding}, in {where}"
        for start in range(0, len(TEXT) - 24, 8):
            piece = encode(TEXT[start : start + 24])
            assert piece not in said, f"a piece of the text, {encoding}, in {where}"
    assert "8675309" not in said, f"a number of the text in {where}"


# What a reply becomes is the same for both but for its vectors: a few of the second will do.
CASES = [("openai-compatible", name) for name in FAILURES]
CASES += [("ollama", name) for name in ("400", "500", "text", "200 with an error", "text for vectors", "cut")]


@pytest.mark.parametrize(("kind", "name"), CASES)
async def test_neither_the_key_nor_a_text_is_to_be_found(
    name: str,
    kind: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    autojump_clock: trio.testing.MockClock,
) -> None:
    caplog.set_level(logging.DEBUG)
    said: dict[str, str] = {}
    recorder: Any = Lines()
    async with open_scripted_engine(rules=[Rule(always, FAILURES[name])]) as scripted:
        url = scripted.base_url if kind == "ollama" else scripted.openai_url
        settings = settings_for(tmp_path, url, kind)
        async with open_engine(settings, environ={"BOX_KEY": KEY}, recorder=recorder) as engine:
            async with open_sweep(engine, all=True) as sweep:
                report = await sweep.run()
            said["the report"] = json.dumps(report.as_json()) + repr(report)
            said["the verdict"] = repr(await engine.probe())
            priorities: tuple[Priority, ...] = ("batch", "interactive")
            for priority in priorities:
                try:
                    await engine.embed([TEXT], priority=priority)
                except EmbedkitError as failure:
                    said[f"the error, {priority}"] = " ".join(chain(failure))
            said["the engine"] = repr(engine.provider()) + repr(engine.lane().statistics())
    assert report.repositories[0].outcome != "complete"
    said["the ledger"] = " ".join(recorder.lines)
    said["the log"] = caplog.text
    out, err = capfd.readouterr()
    said["the output"] = out + err
    said["the tables"] = "\n".join(tables_of(settings.store.path))
    for file in settings.store.path.parent.iterdir():
        said[f"the file {file.name}"] = file.read_bytes().decode("utf-8", "replace")
    said["the settings"] = repr(settings)
    for where, text in said.items():
        check(where, text)


@pytest.mark.parametrize("listed", [KEY, quote(KEY, safe=""), base64.b64encode(f"x{KEY}".encode()).decode(), TEXT])
async def test_a_model_whose_name_is_a_secret_is_not_named(listed: str, tmp_path: Path) -> None:
    async with open_scripted_engine(models=(listed,)) as scripted:
        settings = settings_for(tmp_path, scripted.openai_url, "openai-compatible")
        async with open_engine(settings, environ={"BOX_KEY": KEY}) as engine:
            with pytest.raises(EmbedkitError, match="it has one whose name is not shown") as caught:
                await engine.embed(["one"])
    check("the error", " ".join(chain(caught.value)))
