"""The command line: ``sync``, ``search``, ``status``, ``probe``, ``watch``, ``ask`` and more. It decides nothing."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
from collections.abc import Sequence

import trio

from embedkit.errors import EmbedkitError
from embedkit.settings import Settings, load_settings
from embedkit.surfaces import (
    add_command,
    ask_command,
    forget_command,
    probe_command,
    search_command,
    serve_command,
    settings_command,
    status_command,
    sync_command,
    top_command,
    watch_command,
)
from embedkit.surfaces.arguments import make_parser
from embedkit.surfaces.exits import DONE, INTERRUPTED, drop_output, exit_code_of, print_text, show_error

_COMMANDS = {
    "sync": sync_command.run,
    "probe": probe_command.run,
    "search": search_command.run,
    "status": status_command.run,
    "serve": serve_command.run,
    "top": top_command.run,
    "watch": watch_command.run,
    "add": add_command.run,
    "forget": forget_command.run,
    "ask": ask_command.run_ask,
    "consensus": ask_command.run_consensus,
    "panel": ask_command.run_panel,
    "analyze": ask_command.run_analyze,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; see ``exits``."""
    given = make_parser(as_json="--json" in (sys.argv[1:] if arguments is None else arguments)).parse_args(arguments)
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO if given.verbose else logging.WARNING, format="%(message)s"
    )
    try:
        return _run(given, _settings(given))
    except BaseException as raised:
        code = _told(_innermost(raised), as_json=given.json)
        if code is None:
            raise
        return code
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _told(error: BaseException, *, as_json: bool) -> int | None:
    """Show ``error`` and return its exit code; ``None`` for a defect, whose traceback is what helps."""
    match error:
        case EmbedkitError():
            show_error(error, as_json=as_json)
            return exit_code_of(error)
        case BrokenPipeError():
            # Whoever read us has left (`embedkit search x | head`): nothing more to say, and nothing to say it to.
            drop_output()
            return DONE
        case KeyboardInterrupt():
            return INTERRUPTED
    return None


def _innermost(error: BaseException) -> BaseException:
    """What a nursery made a group of, where it is one thing; an interrupt stands for all that it cut off."""
    while isinstance(error, BaseExceptionGroup):
        interrupts = error.subgroup(KeyboardInterrupt)
        if interrupts is None and len(error.exceptions) > 1:
            break
        error = (interrupts or error).exceptions[0]
    return error


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
    print_text(text)
    return DONE
