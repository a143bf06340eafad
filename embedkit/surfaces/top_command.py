"""``embedkit top``: a gateway in a terminal, as it changes."""

from __future__ import annotations

import argparse
import os
import sys
from shutil import get_terminal_size

from embedkit.errors import UsageError
from embedkit.gateway.following import Follower
from embedkit.settings import Place, Settings
from embedkit.surfaces.exits import DONE, INTERRUPTED, print_json, print_text
from embedkit.surfaces.interrupts import interruptible
from embedkit.surfaces.top_text import top_lines

_HOME = "\x1b[H\x1b[J"


async def run(given: argparse.Namespace, settings: Settings) -> int:
    """Show a gateway until it ends, or until interrupted; once, where nobody can see it change.

    Cancellation:
        The connection is closed.
    """
    url = given.url or _url_of(settings)
    follower = Follower(url, _key(given.key_env))
    is_live = sys.stdout is not None and sys.stdout.isatty() and not given.once and not given.json
    async with interruptible() as interrupt:
        try:
            while (snapshot := await follower.next()) is not None:
                if given.json:
                    print_json(snapshot)
                else:
                    size = get_terminal_size()
                    lines = [line[: size.columns - 1] if is_live else line for line in top_lines(snapshot)]
                    shown = lines[: size.lines - 1] if is_live else lines
                    print_text((_HOME if is_live else "") + "\n".join(shown) + "\n")
                if given.once or not (is_live or given.json):
                    break
        finally:
            await follower.aclose()
    return INTERRUPTED if interrupt.came else DONE


def _url_of(settings: Settings) -> str:
    place = next((place for place in settings.gateway.listen if place.host is not None), None)
    if place is None:
        raise UsageError("the settings' gateway listens on unix sockets alone; name an address: embedkit top URL")
    scheme = "http" if settings.gateway.certificate is None else "https"
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(place.host or "", place.host)  # noqa: S104  # not listened on here
    return f"{scheme}://{Place(host, place.port)}"


def _key(variable: str | None) -> str | None:
    if variable is None:
        return None
    key = os.environ.get(variable, "").strip()
    if not key:
        raise UsageError(f"the environment variable {variable} is not set; export the key")
    return key
