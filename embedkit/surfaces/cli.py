"""The command line: ``sync``, ``search``, ``status``, ``probe``, ``watch``, ``ask`` and more. It decides nothing."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import trio

from embedkit.errors import EmbedkitError
from embedkit.settings import Settings, load_settings
from embedkit.surfaces.arguments import make_parser
from embedkit.surfaces.exits import DONE, INTERRUPTED, drop_output, exit_code_of, print_json, print_text, show_error

# Each is imported when it is run: what one command needs, the others need not wait for.
_COMMANDS = {
    "sync": "sync_command.run",
    "probe": "probe_command.run",
    "search": "search_command.run",
    "status": "status_command.run",
    "watch": "watch_command.run",
    "run": "run_command.run",
    "drain": "drain_command.run",
    "serve": "serve_command.run",
    "top": "top_command.run",
    "add": "add_command.run",
    "forget": "forget_command.run",
    "maintain": "maintain_command.run",
    "backup": "backup_command.back_up",
    "restore": "backup_command.put_back",
    "ask": "ask_command.run_ask",
    "consensus": "ask_command.run_consensus",
    "panel": "ask_command.run_panel",
    "analyze": "ask_command.run_analyze",
    "mcp": "mcp_command.run",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; see ``exits``."""
    parser = make_parser(as_json="--json" in (sys.argv[1:] if arguments is None else arguments))
    given = parser.parse_args(arguments)
    if given.command is None:
        return _introduce(parser, given)
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO if given.verbose else logging.WARNING, format="%(message)s"
    )
    try:
        return _run(given)
    except BaseException as raised:
        code = _told(_innermost(raised), as_json=given.json)
        if code is None:
            raise
        return code
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _introduce(parser: argparse.ArgumentParser, given: argparse.Namespace) -> int:
    """Without a command: which embedkit this is, or what there is."""
    from embedkit import __version__  # it is the package's, above every room

    if not given.version:
        print_text(parser.format_help())
    elif given.json:
        print_json({"version": __version__})
    else:
        print_text(f"embedkit {__version__}\n")
    return DONE


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
            if not as_json:
                sys.stderr.write("embedkit: interrupted\n")
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
    # A blank variable says nothing, as everywhere.
    config = given.config if given.config is not None else os.environ.get("EMBEDKIT_CONFIG", "").strip() or None
    store, origin = given.store, "--store"
    if store is None and (named := os.environ.get("EMBEDKIT_STORE", "").strip()):
        store, origin = Path(named), "EMBEDKIT_STORE"
    return load_settings(config).overridden(provider=given.provider, store=store, store_origin=origin)


def _run(given: argparse.Namespace) -> int:
    if given.command == "doctor":
        # It says itself what is wrong with the settings, and goes on.
        from embedkit.surfaces import doctor_command

        return trio.run(doctor_command.run, given)
    settings = _settings(given)
    if given.command == "settings":
        return _show_settings(given, settings)
    module, _, function = _COMMANDS[given.command].partition(".")
    code: int = trio.run(getattr(import_module(f"embedkit.surfaces.{module}"), function), given, settings)
    return code


def _show_settings(given: argparse.Namespace, settings: Settings) -> int:
    from embedkit.surfaces import settings_command

    if given.schema:
        text = settings_command.render_schema()
    else:
        text = settings_command.render_json(settings) if given.json else settings_command.render(settings)
    print_text(text)
    return DONE
