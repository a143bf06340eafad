"""``embedkit serve`` in a process of its own: its two lines, and its end in order."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import httpx
import trio
from command_line import Ended, Shell, in_a_process, settings_text
from processes import running

from embedkit.testing import open_scripted_engine
from embedkit.testing.engine_rules import Rule, hold, nth

FREE = ("serve", "--listen", "127.0.0.1:0")


async def first_line(out: bytearray) -> str:
    with trio.fail_after(20):
        while b"\n" not in out:  # noqa: ASYNC110  # another process writes it
            await trio.sleep(0.01)
    return out.decode().splitlines()[0]


async def test_it_says_what_it_serves_and_ends_in_order(tmp_path: Path) -> None:
    released = trio.Event()
    async with open_scripted_engine(rules=[Rule(nth(1), hold(released))]) as scripted:
        (tmp_path / "embedkit.toml").write_text(settings_text(scripted.openai_url))
        async with running(tmp_path, *FREE) as command:
            line = await first_line(command.out)
            found = re.fullmatch(r"embedkit serves scripted \(box\) on (127\.0\.0\.1:\d+)", line)
            assert found is not None, line
            replies: dict[str, httpx.Response] = {}
            async with httpx.AsyncClient(base_url=f"http://{found[1]}", timeout=30, trust_env=False) as client:

                async def ask(text: str) -> None:
                    replies[text] = await client.post("/v1/embeddings", json={"model": "scripted", "input": text})

                async with trio.open_nursery() as nursery:
                    nursery.start_soon(ask, "out")
                    await scripted.wait_for_requests(1)
                    nursery.start_soon(ask, "queued")
                    await trio.sleep(0.2)
                    command.process.send_signal(signal.SIGTERM)
                    with trio.fail_after(10):
                        while "queued" not in replies:  # noqa: ASYNC110  # another process sheds it
                            await trio.sleep(0.01)
                    assert "out" not in replies
                    released.set()
            assert replies["out"].status_code == 200
            assert (replies["queued"].status_code, replies["queued"].headers["retry-after"]) == (503, "1")
            assert replies["queued"].json()["error"]["code"] == "closing"
            with trio.fail_after(10):
                assert await command.process.wait() == 0
            await trio.testing.wait_all_tasks_blocked(0.05)
            assert command.out.decode().splitlines()[1] == "embedkit has stopped: 1 of 2 requests answered"
            assert scripted.log.requests == 1


async def test_a_call_that_outlasts_the_drain_is_cut_off(tmp_path: Path) -> None:
    async with open_scripted_engine(rules=[Rule(nth(1), hold(trio.Event()))]) as scripted:
        text = settings_text(scripted.openai_url) + "[gateway]\ndrain_timeout = 0.2\n[engine]\ndrain_timeout = 0\n"
        (tmp_path / "embedkit.toml").write_text(text)
        async with running(tmp_path, *FREE, "--json") as command:
            address = (await command.json(0))["listening"][0]
            stream = await trio.open_tcp_stream("127.0.0.1", int(address.rpartition(":")[2]))
            async with stream:
                body = b'{"model": "scripted", "input": "a"}'
                head = b"POST /v1/embeddings HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
                await stream.send_all(head + body)
                await scripted.wait_for_requests(1)
                command.process.send_signal(signal.SIGTERM)
                with trio.fail_after(10):
                    assert await command.process.wait() == 0
            assert (await command.json(1))["stopped"] is True


def test_what_cannot_be_served_is_one_line(shell: Shell) -> None:
    ended = shell("serve")
    ended.check_one_line("no provider of kind")
    assert ended.code == 2
    (shell.folder / "embedkit.toml").write_text(settings_text("http://127.0.0.1:9/v1"))
    for listen, words in (("0.0.0.0:0", "there are no keys"), ("nowhere", "no place"), ("127.0.0.1:99999", "no place")):
        ended = shell("serve", "--listen", listen)
        ended.check_one_line(words)
        assert ended.code == 2


async def test_an_address_that_is_taken(tmp_path: Path) -> None:
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listeners[0].socket.getsockname()[1]
    (tmp_path / "embedkit.toml").write_text(settings_text("http://127.0.0.1:9/v1"))
    ended = await trio.to_thread.run_sync(lambda: in_a_process(tmp_path, "serve", "--listen", f"127.0.0.1:{port}"))
    ended.check_one_line("cannot listen", "Address already in use")
    assert ended.code == 2
    await listeners[0].aclose()


async def test_top_shows_a_gateway_that_is_served(tmp_path: Path) -> None:
    async with open_scripted_engine() as scripted:
        (tmp_path / "embedkit.toml").write_text(settings_text(scripted.openai_url))
        async with running(tmp_path, *FREE, "--json") as command:
            address = (await command.json(0))["listening"][0]

            async def top(url: str, *arguments: str) -> Ended:
                return await trio.to_thread.run_sync(lambda: in_a_process(tmp_path, "top", url, *arguments))

            ended = await top(f"http://{address}")
            assert ended.code == 0, ended.err
            assert ended.out.startswith("embedkit gateway, up for")
            assert "box: scripted at" in ended.out
            assert (await top(f"http://{address}", "--json", "--once")).json["lanes"][0]["capacity"] == 1
            ended = await top(scripted.base_url)
            ended.check_one_line("is no gateway")
            assert ended.code == 2
