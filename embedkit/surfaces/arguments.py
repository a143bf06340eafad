"""The command line's grammar."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NoReturn

from embedkit.errors import UsageError
from embedkit.surfaces.exits import USAGE, show_error


class _Parser(argparse.ArgumentParser):
    """Says one line, in JSON where the caller asked for JSON."""

    as_json = False

    def error(self, message: str) -> NoReturn:
        mend = f"see `{self.prog} --help`"
        show_error(UsageError(f"{message}; {mend}", code="USAGE"), as_json=self.as_json)
        raise SystemExit(USAGE)


class _JsonParser(_Parser):
    as_json = True


def make_parser(*, as_json: bool = False) -> argparse.ArgumentParser:
    """The whole grammar.

    Args:
        as_json: Whether errors in the arguments are told in JSON.
    """
    parser_class = _JsonParser if as_json else _Parser
    # Before or after the command: a default of the second place would undo what was said in the first.
    common = parser_class(add_help=False, argument_default=argparse.SUPPRESS)
    _add_common(common)
    parser = parser_class(
        prog="embedkit",
        description="Embedding work on scarce engines: sync repositories, search them.",
    )
    _add_common(parser)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=parser_class)

    def command(name: str, description: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, parents=[common], help=description, description=description)

    sync = command("sync", "bring the knowledge base up to date with folders, or with the settings' tenants")
    _add_paths(sync)
    sync.add_argument("--all", action="store_true", help="tenants of the settings that are not due as well")

    search = command("search", "find the nearest chunks")
    search.add_argument("query", metavar="QUERY")
    search.add_argument("-k", type=_positive, default=10, metavar="N", help="how many (default: 10)")
    whose = search.add_mutually_exclusive_group()
    whose.add_argument("--tenant", metavar="NAME", help="whose chunks (default: the store's only tenant)")
    whose.add_argument("--all-tenants", action="store_true", help="every tenant's chunks")
    search.add_argument("--repository", metavar="NAME", help="only in this repository")
    search.add_argument("--mode", choices=("hybrid", "vector", "text"), default="hybrid")

    command("status", "what is stored, what is outstanding and why, what happened")
    probe = command("probe", "whether a provider can answer; shares one probe with all who ask")
    probe.add_argument("name", nargs="?", metavar="PROVIDER", help="which provider (default: the one that embeds)")
    watch = command("watch", "sync, and sync again whenever files change")
    _add_paths(watch)
    ask = command("ask", "one question to many models; answers appear as they settle")
    ask.add_argument("question", nargs="?", metavar="QUESTION", help="the prompt (default: standard input)")
    _add_whom(ask)
    ask.add_argument("--deadline", type=_seconds, metavar="SECONDS", help="for everything: queue, attempts and waits")
    consensus = command("consensus", "have a panel judge a proposal until all approve")
    consensus.add_argument("proposal", nargs="?", metavar="PROPOSAL", help="what is judged (default: standard input)")
    _add_whom(consensus)
    consensus.add_argument("--arbiter", metavar="NAME", help="who adjudicates (default: consensus.arbiter)")
    consensus.add_argument("--max-rounds", type=_positive, metavar="N", help="rounds at most")
    panel = command("panel", "who would be asked; nothing is sent")
    _add_to(panel)
    analyze = command("analyze", "what a debug.jsonl says of each model")
    analyze.add_argument("file", nargs="?", type=Path, metavar="FILE", help="the log (default: ask.log)")
    settings = command("settings", "what is in force, and where each value came from")
    settings.add_argument("--schema", action="store_true", help="print the settings' JSON schema")
    return parser


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", metavar="FILE", help="settings file (default: embedkit.toml here or in a parent)")
    parser.add_argument("--store", metavar="FILE", type=Path, help="knowledge base (default: beside the settings file)")
    parser.add_argument("--provider", metavar="NAME", help="which provider embeds")
    # The parser's own default where it has one: ``store_true`` would bring its own.
    parser.add_argument(
        "--json",
        action="store_const",
        const=True,
        default=parser.argument_default or False,
        help="one JSON document on standard output, nothing else",
    )
    parser.add_argument(
        "-v",
        "--verbose",
        action="store_const",
        const=True,
        default=parser.argument_default or False,
        help="say more on standard error",
    )
    parser.add_argument(
        "--show-engine-words",
        action="store_const",
        const=True,
        default=parser.argument_default or False,
        help="show on standard error what an engine says about a refusal; it may quote texts",
    )


def _add_paths(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", nargs="*", type=Path, metavar="PATH", help="folders (tenant `default`)")


def _add_whom(parser: argparse.ArgumentParser) -> None:
    _add_to(parser)
    parser.add_argument("--timeout", type=_seconds, metavar="SECONDS", help="for one attempt (default: the settings')")


def _add_to(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--to", action="append", metavar="NAME", help="whom: an alias of the panel, or a provider; may be repeated"
    )


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number of seconds")
    return seconds


def _positive(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive whole number")
    return int(text)
