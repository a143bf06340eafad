"""The tools: each a name, what it takes as JSON schema, and an async function to a JSON object."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import attrs

from embedkit.ask import Round, ask_all, ask_one, consensus, panel
from embedkit.ask.health import learn_health
from embedkit.ask.results import Result
from embedkit.engine import Engine
from embedkit.errors import DeadlineExceeded, EmbedkitError, QueueWaitExceeded, UsageError
from embedkit.settings import Limit
from embedkit.surfaces import search_command, status_command
from embedkit.surfaces.mcp.deployment import deployment
from embedkit.surfaces.mcp.limits import Limits

Arguments = Mapping[str, Any]
Document = dict[str, Any]


@attrs.frozen(eq=False)
class Call:
    """One call of a tool.

    Attributes:
        engine: Through whose lanes.
        limits: How long it may take.
        tell: Told, without waiting, of each step: how many are done, of how many, and a line about the last.
    """

    engine: Engine
    limits: Limits
    tell: Callable[[float, float | None, str], object]


@attrs.frozen(eq=False)
class Tool:
    """One tool.

    Attributes:
        name: What clients call.
        description: For models, which choose by it.
        properties: What it takes, by name, as JSON schemas.
        required: Names that have to be given.
        run: What it does.
    """

    name: str
    description: str
    properties: Mapping[str, Document]
    required: tuple[str, ...]
    run: Callable[[Call, Arguments], Awaitable[Document]]

    @property
    def schema(self) -> Document:
        """The JSON schema of its arguments."""
        return {
            "type": "object",
            "properties": dict(self.properties),
            "required": list(self.required),
            "additionalProperties": False,
        }


async def _ask_one(call: Call, given: Arguments) -> Document:
    result = await ask_one(
        call.engine,
        given["question"],
        given["who"],
        timeout=given.get("timeout"),
        deadline=call.limits.within(given.get("deadline")),
        files=_files(call.engine, given),
    )
    return result.as_json()


async def _ask_all(call: Call, given: Arguments) -> Document:
    done: list[str] = []

    def settled(result: Result) -> None:
        done.append(result.alias)
        call.tell(len(done), None, f"{result.alias}: {getattr(result, 'kind', 'answer')}")

    await learn_health(call.engine)
    replies = await ask_all(
        call.engine,
        given["question"],
        given.get("to"),
        timeout=given.get("timeout"),
        deadline=call.limits.within(given.get("deadline")),
        files=_files(call.engine, given),
        on_result=settled,
    )
    return replies.as_json()


async def _consensus(call: Call, given: Arguments) -> Document:
    settings = call.engine.settings.consensus
    rounds = given.get("max_rounds", settings.max_rounds)

    def ended(one: Round) -> None:
        call.tell(one.number, rounds, f"round {one.number}: arbiter {one.arbiter}")

    own = Limit(settings.max_wall, "consensus.max_wall")
    asked = Limit(given["max_wall"], "the request's max_wall") if "max_wall" in given else own
    await learn_health(call.engine)
    found = await consensus(
        call.engine,
        given["proposal"],
        given.get("to"),
        arbiter=given.get("arbiter"),
        max_rounds=given.get("max_rounds"),
        max_wall=call.limits.within(asked),
        timeout=given.get("timeout"),
        on_round=ended,
    )
    return found.as_json()


async def _panel(call: Call, given: Arguments) -> Document:
    await learn_health(call.engine)
    view = panel(call.engine, given.get("to"))
    asked = [{"alias": one.alias, "provider": one.provider, "model": one.model} for one in view.asked]
    return {"asked": asked, "omitted": list(view.omitted), "unavailable": dict(view.unavailable)}


async def _search(call: Call, given: Arguments) -> Document:
    query, mode = given.get("query"), given.get("mode", "hybrid")
    like = given.get("like")
    if (query is None) == (like is None):
        raise UsageError("search for what? Give query, or like: the place of a chunk")
    arguments = argparse.Namespace(
        query=query or "",
        like=None if like is None else (like["path"], like["line"]),
        tenant=given.get("tenant"),
        all_tenants=given.get("all_tenants", False),
        repository=given.get("repository"),
        k=given.get("k", 10),
        mode=mode,
        path=given.get("path", []),
        lang=given.get("language", []),
        min_score=given.get("min_score"),
        metadata=list(given.get("metadata", {}).items()),
    )
    limit = call.limits.within()
    try:
        hits = await search_command.found_hits(arguments, call.engine, limit.seconds)
        roots = await search_command.roots_of(call.engine)
    except (DeadlineExceeded, QueueWaitExceeded) as error:
        raise EmbedkitError(f"{error} ({limit.rung}: {limit.seconds:g} s)", code=error.code) from error
    return {"query": query or "", "mode": mode, "hits": [search_command.hit_as_json(hit, roots) for hit in hits]}


async def _sync_status(call: Call, given: Arguments) -> Document:
    return (await status_command.look(call.engine.settings)).as_json()


async def _inspect_deployment(call: Call, given: Arguments) -> Document:
    return await deployment(call.engine)


def _files(engine: Engine, given: Arguments) -> tuple[Path, ...]:
    """The files that are named, which have to be below the settings' folder: a model chooses them."""
    root = (engine.settings.file.parent if engine.settings.file else Path.cwd()).resolve()
    found = [(root / name).resolve() for name in given.get("files", [])]
    for path in found:
        if not path.is_relative_to(root):
            raise UsageError(f"{path} is not below {root}; files over MCP are taken from there alone")
    return tuple(found)


_TEXT = {"type": "string", "minLength": 1}
_NAMES = {"type": "array", "items": _TEXT, "minItems": 1}
_SECONDS = {"type": "number", "exclusiveMinimum": 0}
_TO = {**_NAMES, "description": "aliases of the panel, or names of providers; without it, the whole panel"}
_TIMEOUT = {**_SECONDS, "description": "seconds for one attempt; without it, the settings' ladder"}
_DEADLINE = {**_SECONDS, "description": "seconds for everything: queue, attempts and waits"}
_FILES = {**_NAMES, "description": "sent along by providers that can; below the settings' folder"}

TOOLS: Mapping[str, Tool] = {
    tool.name: tool
    for tool in (
        Tool(
            "ask_one",
            "Ask one chat model a question. The result is an answer, or a failure that says its kind.",
            {
                "question": {**_TEXT, "description": "the prompt"},
                "who": {**_TEXT, "description": "an alias of the panel, or the name of a provider"},
                "timeout": _TIMEOUT,
                "deadline": _DEADLINE,
                "files": _FILES,
            },
            ("question", "who"),
            _ask_one,
        ),
        Tool(
            "ask_all",
            "Ask every member of the panel one question at once: one result for each, whatever became of it.",
            {
                "question": {**_TEXT, "description": "the prompt"},
                "to": _TO,
                "timeout": _TIMEOUT,
                "deadline": _DEADLINE,
                "files": _FILES,
            },
            ("question",),
            _ask_all,
        ),
        Tool(
            "consensus",
            "Have the panel judge a proposal, in rounds, until all approve or it is known that they will not.",
            {
                "proposal": {**_TEXT, "description": "what is judged"},
                "to": _TO,
                "arbiter": {**_TEXT, "description": "who adjudicates; without it, consensus.arbiter"},
                "max_rounds": {"type": "integer", "minimum": 1},
                "max_wall": {**_SECONDS, "description": "seconds in all"},
                "timeout": _TIMEOUT,
            },
            ("proposal",),
            _consensus,
        ),
        Tool(
            "panel", "Who would be asked, and who cannot be, with the reason. Sends nothing.", {"to": _TO}, (), _panel
        ),
        Tool(
            "search",
            "Find the nearest chunks of the knowledge base.",
            {
                "query": {**_TEXT, "description": "words or code"},
                "like": {
                    "type": "object",
                    "properties": {"path": _TEXT, "line": {"type": "integer", "minimum": 1}},
                    "required": ["path", "line"],
                    "additionalProperties": False,
                    "description": "in place of a query: neighbours of the chunk that stands there",
                },
                "tenant": {**_TEXT, "description": "whose chunks; without it, the store's only tenant"},
                "all_tenants": {"type": "boolean", "description": "every tenant's"},
                "repository": {**_TEXT, "description": "only in this repository"},
                "k": {"type": "integer", "minimum": 1, "maximum": 1000, "description": "how many; 10 without it"},
                "mode": {"enum": ["hybrid", "vector", "text"]},
                "path": {**_NAMES, "description": "globs: only in documents that one of them names"},
                "language": {**_NAMES, "description": "only in these languages, or suffixes"},
                "min_score": {"type": "number"},
                "metadata": {"type": "object", "description": "only in documents whose metadata has it"},
            },
            (),
            _search,
        ),
        Tool(
            "sync_status",
            "What is stored, what is outstanding and why, and what happened. Sends nothing.",
            {},
            (),
            _sync_status,
        ),
        Tool(
            "inspect_deployment",
            "What this server runs on: version, settings, providers, lanes, panel, and what is missing. Sends nothing.",
            {},
            (),
            _inspect_deployment,
        ),
    )
}
