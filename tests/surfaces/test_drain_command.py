"""``embedkit drain``: what another process deferred."""

from __future__ import annotations

import trio
from command_line import Shell

import embedkit


def deferred(shell: Shell, *texts: str) -> None:
    settings = embedkit.Settings(store=embedkit.StoreSettings(path=shell.store))

    async def main() -> None:
        async with embedkit.open_engine(settings) as engine:
            for text in texts:
                await engine.defer(text, tenant="acme", repository="memories", path=f"{text}.txt")

    trio.run(main)


def test_what_was_deferred_is_drained_and_found(shell: Shell) -> None:
    assert shell("drain", "--once").code == 2
    deferred(shell, "apple", "pear")
    ended = shell("drain", "--once", "--json")
    assert ended.code == 0
    counts = {name: ended.json[name] for name in ("drained", "failed", "waiting", "given_up", "yielded")}
    assert counts == {"drained": 2, "failed": 0, "waiting": 0, "given_up": 0, "yielded": None}
    (hit,) = shell("search", "apple", "--json", "--mode", "text").json["hits"]
    assert (hit["tenant"], hit["repository"], hit["path"]) == ("acme", "memories", "apple.txt")
    ended = shell("drain", "--once", "--retry-failed")
    assert (ended.code, ended.out) == (0, "drained: 0 texts, 0 calls; 0 waiting, 0 given up\n")
