"""The command line's grammar."""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any, NoReturn

from embedkit.errors import UsageError
from embedkit.surfaces.exits import USAGE, show_error

_DOCTOR = "whether everything is there that the settings need; nothing is sent"


class _Parser(argparse.ArgumentParser):
    """Says one line, in JSON where the caller asked for JSON."""

    as_json = False

    def __init__(self, *args: Any, **options: Any) -> None:
        # An abbreviation that is unambiguous today is another option's tomorrow.
        super().__init__(*args, **{**options, "allow_abbrev": False})

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
    parser.add_argument("--version", action="store_true", help="which embedkit this is")
    commands = parser.add_subparsers(dest="command", required=False, metavar="COMMAND", parser_class=parser_class)

    def command(name: str, description: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, parents=[common], help=description, description=description)

    sync = command("sync", "bring the knowledge base up to date with folders, or with the settings' tenants")
    _add_paths(sync)
    sync.add_argument("--all", action="store_true", help="tenants of the settings that are not due as well")
    sync.add_argument(
        "--allow-empty", action="store_true", help="remove what is stored of a repository that now has no documents"
    )

    sync.add_argument("--retry-fenced", action="store_true", help="offer the engine once more what it refused")
    sync.add_argument("--name", metavar="NAME", help="what the one folder's repository is called")
    sync.add_argument("--list-skipped", action="store_true", help="name every file that is left out, with the reason")

    search = command("search", "find the nearest chunks")
    search.add_argument("query", metavar="QUERY", nargs="*", help="words or code")
    search.add_argument("--like", metavar="PATH:LINE", type=_place, help="neighbours of the chunk that stands there")
    search.add_argument("-k", type=_positive, default=10, metavar="N", help="how many (default: 10)")
    whose = search.add_mutually_exclusive_group()
    whose.add_argument("--tenant", metavar="NAME", help="whose chunks (default: the store's only tenant)")
    whose.add_argument("--all-tenants", action="store_true", help="every tenant's chunks")
    search.add_argument("--repository", metavar="NAME", help="only in this repository")
    search.add_argument("--path", metavar="GLOB", action="append", default=[], help="only in documents that it names")
    search.add_argument("--lang", metavar="NAME", action="append", default=[], help="only in this language, or suffix")
    search.add_argument(
        "--min-score", type=_number, metavar="X", help="only hits with at least this cosine; mode text: this BM25"
    )
    search.add_argument(
        "--metadata",
        metavar="KEY=VALUE",
        type=_value,
        action="append",
        default=[],
        help="only in documents whose metadata has it; VALUE is JSON, or else text",
    )
    search.add_argument("--context", metavar="N", type=_count, default=0, help="show N lines around each, of its chunk")
    search.add_argument("-l", "--files", action="store_true", help="only the paths, best first, each once")
    search.add_argument("--schema", action="store_true", help="print the JSON schema of what --json prints")
    search.add_argument("--mode", choices=("hybrid", "vector", "text"), default="hybrid")

    status = command("status", "what is stored, what is outstanding and why, what happened")
    status.add_argument("--tenant", metavar="NAME", help="only this tenant's repositories")
    status.add_argument("--trouble", action="store_true", help="only repositories that somebody may want to look at")
    probe = command("probe", "whether a provider can answer; shares one probe with all who ask")
    probe.add_argument("name", nargs="?", metavar="PROVIDER", help="which provider (default: the one that embeds)")
    watch = command("watch", "sync, and sync again whenever files change")
    _add_paths(watch)
    _add_run(command("run", "the schedule: sweep whatever is due, for ever"))
    drain = command("drain", "embed the texts that were deferred, for ever")
    drain.add_argument("--once", action="store_true", help="until none is ready, and say what was done")
    drain.add_argument("--retry-failed", action="store_true", help="offer what was given up once more")
    serve = command("serve", "a gateway: other programs share the engines' lanes over HTTP")
    serve.add_argument(
        "--listen",
        metavar="WHERE",
        action="append",
        default=[],
        help="host:port or unix:PATH, may be repeated (default: gateway.listen)",
    )
    top = command("top", "a gateway as it changes: slots, waits, the last requests")
    top.add_argument("url", nargs="?", metavar="URL", help="where it is (default: gateway.listen)")
    top.add_argument("--key-env", metavar="NAME", help="the variable that holds the key it asks for")
    top.add_argument("--once", action="store_true", help="show it once and end")
    add = command("add", "store texts that are in no folder: JSON lines on standard input")
    add.add_argument("--tenant", metavar="NAME", help="whose texts (default: `default`)")
    add.add_argument("--repository", metavar="NAME", required=True, help="where they go; made if there is none")
    add.add_argument("--complete", action="store_true", help="remove what is stored there and not named")
    add.add_argument("--allow-empty", action="store_true", help="with --complete: even if nothing is named")
    forget = command("forget", "remove a repository, or all of a tenant, from the knowledge base")
    forget.add_argument("--tenant", metavar="NAME", help="whose (default: the store's only tenant)")
    forget.add_argument("--repository", metavar="NAME", help="which (default: all of the tenant's)")
    forget.add_argument("--yes", action="store_true", help="do not ask")
    maintain = command("maintain", "compact the knowledge base, in portions, while others work on it")
    maintain.add_argument("--rebuild", action="store_true", help="write the whole file anew first; others wait")
    backup = command("backup", "copy the knowledge base into a file, while others work on it")
    backup.add_argument("file", type=Path, metavar="FILE", help="where; an earlier backup there is replaced")
    restore = command("restore", "put a backup in place of the knowledge base")
    restore.add_argument("file", type=Path, metavar="FILE", help="what `embedkit backup` made")
    ask = command("ask", "one question to many models; answers appear as they settle")
    ask.add_argument("question", nargs="?", metavar="QUESTION", help="the prompt (default: standard input)")
    _add_whom(ask)
    ask.add_argument("--deadline", type=_seconds, metavar="SECONDS", help="for everything: queue, attempts and waits")
    ask.add_argument(
        "--file", action="append", default=[], type=Path, metavar="PATH", help="sent along, by kind grok; repeatable"
    )
    consensus = command("consensus", "have a panel judge a proposal until all approve")
    consensus.add_argument("proposal", nargs="?", metavar="PROPOSAL", help="what is judged (default: standard input)")
    _add_whom(consensus)
    consensus.add_argument("--arbiter", metavar="NAME", help="who adjudicates (default: consensus.arbiter)")
    consensus.add_argument("--max-rounds", type=_positive, metavar="N", help="rounds at most")
    panel = command("panel", "who would be asked; nothing is sent")
    _add_to(panel)
    analyze = command("analyze", "what a debug.jsonl says of each model")
    analyze.add_argument("file", nargs="?", type=Path, metavar="FILE", help="the log (default: ask.log)")
    doctor = commands.add_parser("doctor", parents=[_common_of_doctor(parser_class)], help=_DOCTOR, description=_DOCTOR)
    doctor.add_argument("--repair", action="store_true", help="drop what is damaged and can be bought or read again")
    _add_mcp(command("mcp", "serve ask, consensus, search and more to an MCP client, on standard input and output"))
    settings = command("settings", "what is in force, and where each value came from")
    settings.add_argument("--schema", action="store_true", help="print the settings' JSON schema")
    return parser


def _common_of_doctor(parser_class: type[_Parser]) -> _Parser:
    """As for every command, but ``--store`` says that the store is read as well, and may go without its name."""
    common = parser_class(add_help=False, argument_default=argparse.SUPPRESS)
    _add_common(common)
    for action in common._actions:
        if action.dest == "store":
            action.nargs, action.const = "?", Path()
            action.help = "read all of the knowledge base, too; without FILE: the one in force"
    return common


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
    parser.add_argument(
        "--include", action="append", default=[], metavar="GLOB", help="only files that this names, as in a .gitignore"
    )
    parser.add_argument(
        "--exclude", action="append", default=[], metavar="GLOB", help="leave these out; `!GLOB` takes back"
    )


def _add_run(run: argparse.ArgumentParser) -> None:
    run.add_argument("--once", action="store_true", help="one sweep of what is due, as `sync`")
    # What `sync` can be told besides, and `run --once` is not.
    run.set_defaults(
        paths=[],
        all=False,
        include=[],
        exclude=[],
        name=None,
        allow_empty=False,
        retry_fenced=False,
        list_skipped=False,
    )


def _add_mcp(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--http", action="store_true", help="serve over HTTP instead, on a loopback address")
    parser.add_argument("--host", default="127.0.0.1", metavar="ADDRESS", help="with --http (default: 127.0.0.1)")
    parser.add_argument("--port", type=_port, default=8722, metavar="N", help="with --http (default: 8722; 0: any)")


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port; write a number up to 65535")
    return int(text)


def _place(text: str) -> tuple[str, int]:
    path, _, line = text.rpartition(":")
    if not path or not line.isascii() or not line.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is no place; write PATH:LINE, for example src/app.py:12")
    return path, int(line)


def _value(text: str) -> tuple[str, object]:
    key, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} says no value; write KEY=VALUE, for example author=ann")
    try:
        return key, json.loads(value)
    except (ValueError, RecursionError):
        return key, value


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number")
    return value


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


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def _positive(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive whole number")
    return int(text)
