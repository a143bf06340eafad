"""The command line: ``embedkit sync``, ``search``, ``status``, ``watch``, ``settings``. It decides nothing."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from collections.abc import Sequence

import trio

from embedkit.errors import EmbedkitError
from embedkit.settings import Settings, load_settings
from embedkit.surfaces import search_command, settings_command, status_command, sync_command, watch_command
from embedkit.surfaces.arguments import make_parser
from embedkit.surfaces.exits import DONE, INTERRUPTED, exit_code_of, show_error

_COMMANDS = {
    "sync": sync_command.run,
    "search": search_command.run,
    "status": status_command.run,
    "watch": watch_command.run,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; see ``exits``."""
    given = make_parser().parse_args(arguments)
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO if given.verbose else logging.WARNING, format="%(message)s"
    )
    try:
        return _run(given, _settings(given))
    except EmbedkitError as error:
        show_error(error, as_json=given.json)
        return exit_code_of(error)
    except BrokenPipeError:
        # Whoever read us has left (`embedkit search x | head`): nothing more to say, and nothing to say it to.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _settings(given: argparse.Namespace) -> Settings:
    return load_settings(given.config).overridden(provider=given.provider, store=given.store)


def _run(given: argparse.Namespace, settings: Settings) -> int:
    if given.command == "settings":
        return _show_settings(given, settings)
    return trio.run(_COMMANDS[given.command], given, settings)


def _show_settings(given: argparse.Namespace, settings: Settings) -> int:
    if given.schema:
        text = settings_command.render_schema()
    else:
        text = settings_command.render_json(settings) if given.json else settings_command.render(settings)
    sys.stdout.write(text)
    return DONE
