"""``embedkit serve``: the gateway, until a signal ends it in order."""

from __future__ import annotations

import argparse
import os
import signal

import attrs
import trio

from embedkit.engine import open_engine
from embedkit.errors import UsageError
from embedkit.gateway.catalogue import names_of
from embedkit.gateway.serving import Gateway, open_gateway
from embedkit.settings import Settings
from embedkit.settings.gateway_tables import place_of
from embedkit.surfaces.engine_words import words_shown
from embedkit.surfaces.exits import DONE, INTERRUPTED, print_json, print_text


async def run(given: argparse.Namespace, settings: Settings) -> int:
    """Serve until SIGTERM or Ctrl-C; then let nothing more in, and end what is here.

    Cancellation:
        Every connection is closed at once.
    """
    settings = listening_at(settings, given.listen)
    async with trio.open_nursery() as nursery:
        stop = trio.Event()
        await nursery.start(_listen_for_signals, stop)
        async with open_engine(settings, show_words=words_shown(given)) as engine, open_gateway(engine) as gateway:
            _say_listening(gateway, as_json=given.json)
            await stop.wait()
        _say_stopped(gateway, as_json=given.json)
        nursery.cancel_scope.cancel()
    return DONE


def listening_at(settings: Settings, texts: list[str]) -> Settings:
    """The settings with what ``--listen`` says in place of ``gateway.listen``.

    Raises:
        UsageError: It names no place.
    """
    if not texts:
        return settings
    places = []
    for text in texts:
        place = place_of(text)
        if place is None:
            raise UsageError(f"--listen {text!a} is no place; write 127.0.0.1:8400 or unix:/run/embedkit.sock")
        places.append(place)
    return attrs.evolve(settings, gateway=attrs.evolve(settings.gateway, listen=tuple(places)))


async def _listen_for_signals(
    stop: trio.Event, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        async for _ in signals:
            if stop.is_set():
                os._exit(INTERRUPTED)  # asked twice: at once
            stop.set()


def _say_listening(gateway: Gateway, *, as_json: bool) -> None:
    served = list(gateway.shared.catalogue.served.values())
    if as_json:
        print_json({"listening": list(gateway.addresses), "models": {one.model: one.provider for one in served}})
    else:
        print_text(f"embedkit serves {', '.join(names_of(served))} on {', '.join(gateway.addresses)}\n")


def _say_stopped(gateway: Gateway, *, as_json: bool) -> None:
    totals = [lane.statistics().totals for lane in gateway.shared.engine.lanes]
    offered, answered = sum(one.offered for one in totals), sum(one.succeeded for one in totals)
    if as_json:
        print_json({"stopped": True, "offered": offered, "succeeded": answered})
    else:
        print_text(f"embedkit has stopped: {answered} of {offered} requests answered\n")
