"""The tables of ``embedkit.toml``, as values: one frozen class each, checked wherever it is made.

Every duration is in seconds. A key that a class cannot default by itself, because another table or the command decides,
is ``None`` here and resolved by a method of ``Settings``.
"""

# ruff: noqa: RUF009  # key() makes an attrs field, whose place is the class body
from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

import attrs

from embedkit.settings import added, rules
from embedkit.settings.fields import Fault, as_tuple, checked, instances, key, refuse, required, tables
from embedkit.settings.kinds import KINDS, AnswerFloor, Kind, KindName, cores, without_use
from embedkit.settings.redaction import redacted_url, shown
from embedkit.settings.rules import optional

_DEFAULT_STORE = Path(".embedkit/knowledge.sqlite3")


def _by_kind(name: str) -> Any:
    """A default that the provider's kind gives."""
    return attrs.Factory(lambda self: getattr(self.traits, name), takes_self=True)


def _traits(kind: object) -> Kind:
    # Defaults are filled in before the validator has seen the kind, so it may be anything here.
    return KINDS.get(kind, Kind()) if isinstance(kind, str) else Kind()


def _names(table: Any) -> str:
    # What is added to requests may hold what is nobody's business; its names do not.
    return f"<{', '.join(table)}>" if isinstance(table, Mapping) else repr(table)


def _slots(provider: ProviderSettings) -> int:
    return cores() if provider.kind == "local" else 1


@attrs.frozen(kw_only=True)
class ProviderSettings:
    """One way to speak to an engine."""

    section: ClassVar[str] = "providers.<name>."

    kind: KindName = attrs.field(
        validator=checked, metadata=required(rules.one_of(*KINDS), "how the engine is spoken to")
    )
    base_url: str | None = key(
        optional(rules.BASE_URL),
        _by_kind("base_url"),
        "where the engine is; the path ends in whatever precedes `/embeddings` (`ollama`: the server's root)",
        in_words="by kind",
    )
    model: str | None = key(optional(rules.TEXT), None, "the model's id, as the engine knows it", in_words="by kind")
    api_key_env: str | None = key(
        optional(rules.VARIABLE),
        _by_kind("api_key_env"),
        "the environment variable that holds the key; the key itself never stands in the file",
        in_words="by kind",
    )
    timeout: float | None = key(rules.RUNG, None, "the ladder's third rung: seconds that one attempt may take")
    capacity: int = key(
        rules.COUNT,
        attrs.Factory(_slots, takes_self=True),
        "provider tasks at once (`openai-compatible`), calls at once (`ollama`, `local`)",
        in_words="1; `local`: number of cores",
    )
    reserve: int | None = key(
        optional(rules.COUNT_OR_ZERO),
        None,
        "slots that batch work leaves free; a capacity of 1 knows none",
        in_words="1; 0 in the `sync` command",
    )
    max_queued: int = key(rules.COUNT, 1024, "tickets that may wait, for each tenant of a class")
    lead: float = key(
        rules.DURATION_OR_ZERO,
        30.0,
        "seconds of engine time that people may have beyond their share while batch work waits; so may batch before "
        "probes",
    )
    batch_share: float = key(rules.POSITIVE, 1.0, "the share of engine time of batch work, where that of people is 1")
    max_retry_after: float = key(rules.DURATION_OR_ZERO, 30.0, "the longest hint, in seconds, that is waited for")
    over_cap: Literal["clamp", "give-up"] = key(
        rules.one_of("clamp", "give-up"), "clamp", "what is done about a longer hint"
    )
    num_ctx: int | None = key(optional(rules.COUNT), None, "the model's window, in tokens", in_words="the engine's")
    keep_alive: str | float | None = key(
        optional(rules.KEEP_ALIVE), None, "how long the model stays loaded", in_words="the engine's"
    )
    dimensions: int | None = key(optional(rules.COUNT), None, "the vectors' dimension", in_words="the engine's")
    preflight: bool = key(
        rules.FLAG, True, "whether the engine is asked for its models first; false where its list is not complete"
    )
    headers: Mapping[str, str] | None = key(
        optional(added.HEADERS), None, "sent with each request; `${NAME}` stands for a variable's value", show=_names
    )
    query: Mapping[str, str] | None = key(
        optional(added.QUERY), None, "parameters of each request's address; `${NAME}` as in `headers`", show=_names
    )
    body: Mapping[str, Any] | None = key(
        optional(added.BODY), None, "fields of each request besides ours; part of the space's identity", show=_names
    )
    query_body: Mapping[str, Any] | None = key(
        optional(added.BODY), None, "fields of a request for a search, over `body`; part of the space too", show=_names
    )
    query_prefix: str | None = key(
        optional(added.PREFIX), None, "set before each text that is searched for; part of the space's identity"
    )
    document_prefix: str | None = key(
        optional(added.PREFIX), None, "set before each text that is stored; part of the space's identity"
    )
    options: Mapping[str, Any] | None = key(
        optional(added.OPTIONS), None, "options of Ollama's runner, such as `num_batch`", show=_names
    )
    ca_file: Path | None = key(
        optional(rules.PATH), None, "certificates, as PEM, of authorities to trust besides the usual"
    )
    proxy: str | None = key(
        optional(added.PROXY), None, "an HTTP proxy for each request; `${NAME}` where its address holds a password"
    )
    answer_floor: AnswerFloor = key(
        rules.one_of("length", "intent", "off"),
        _by_kind("answer_floor"),
        "how a short answer is told from an announcement",
        in_words="`intent`; `gemini-cli`: `length`",
    )

    stream: bool | None = key(
        optional(rules.FLAG),
        None,
        "whether chat answers come as a stream of events, so that `stream_idle` can end a silent one",
        in_words="false",
    )
    stream_idle: float = key(
        rules.DURATION, 60.0, "seconds that a stream may be without an event, its first included; within the timeout"
    )

    def __attrs_post_init__(self) -> None:
        refuse(self, self._faults)

    @property
    def traits(self) -> Kind:
        """What the kind is able to do, needs and defaults to."""
        return _traits(self.kind)

    def _faults(self) -> Iterator[Fault]:
        for name in self.traits.needs:
            if getattr(self, name) is None:
                example = {"base_url": "http://127.0.0.1:8080/v1", "model": "all-minilm"}[name]
                yield Fault((name,), f'missing; kind "{self.kind}" needs it: write for example {name} = "{example}"')
        for name, reason in without_use(self.kind).items():
            value = getattr(self, name)
            if value is not None:
                yield Fault((name,), f"{shown(value)} has no use: {reason}; leave it out")


@attrs.frozen(kw_only=True)
class ProviderDefaults:
    """What holds for every provider whose section does not say otherwise."""

    section: ClassVar[str] = "providers.defaults."

    timeout: float | None = key(rules.RUNG, None, "the ladder's fourth rung, in seconds, for every provider")


@attrs.frozen(kw_only=True)
class ModelSettings:
    """What holds for one model, whichever provider serves it."""

    section: ClassVar[str] = "models.<id>."

    timeout: float | None = key(rules.RUNG, None, "the ladder's second rung, in seconds")


@attrs.frozen(kw_only=True)
class EmbeddingSettings:
    """Who embeds, and how much at once."""

    section: ClassVar[str] = "embedding."

    provider: str = key(rules.TEXT, "local", "the name of the provider that embeds")
    batch: int | None = key(optional(rules.COUNT), None, "inputs in a call of the indexer", in_words="5; `local`: 128")
    chunk_tokens: int = key(
        rules.CHUNK_TOKENS, 512, "tokens of a chunk at most, by an estimate; about half of it is aimed at"
    )


@attrs.frozen(kw_only=True)
class StoreSettings:
    """Where vectors are kept."""

    section: ClassVar[str] = "store."

    path: Path = key(rules.PATH, _DEFAULT_STORE, "the SQLite file", in_words="`.embedkit/knowledge.sqlite3`")


@attrs.frozen(kw_only=True)
class SweepSettings:
    """How one run goes over many repositories."""

    section: ClassVar[str] = "sweep."

    concurrency: int = key(rules.COUNT, 4, "repositories at once")
    tenant_concurrency: int = key(rules.COUNT, 2, "repositories of one tenant at once")
    slice: float = key(rules.DURATION, 300.0, "seconds that one repository may hold the sweep")
    cadence: float = key(rules.DURATION, 1800.0, "seconds until a complete repository is due again")
    backoff_cap: float = key(rules.DURATION, 7200.0, "the longest backoff, in seconds")
    max_file_bytes: int = key(rules.COUNT, 1_048_576, "larger files are skipped as `oversized`")
    include: tuple[str, ...] = key(rules.PATTERNS, (), "only files that these name are indexed", in_words="all")
    exclude: tuple[str, ...] = key(
        rules.PATTERNS,
        (),
        "files that are left out; `!` takes back what an ignore file or the default list names",
        in_words="none",
    )


@attrs.frozen(kw_only=True)
class ProbeSettings:
    """How often an engine's health is asked for."""

    section: ClassVar[str] = "probe."

    fresh: float = key(rules.DURATION_OR_ZERO, 60.0, "seconds for which a healthy verdict is shared")
    failing: float = key(rules.DURATION_OR_ZERO, 30.0, "seconds for which a failing verdict is shared; doubles")
    failing_cap: float = key(rules.DURATION_OR_ZERO, 600.0, "the most it doubles to, in seconds")
    share: float = key(rules.SHARE, 0.25, "probe calls for each call of real work, at most")


@attrs.frozen(kw_only=True)
class EngineSettings:
    """How the engine ends."""

    section: ClassVar[str] = "engine."

    drain_timeout: float = key(rules.DURATION_OR_ZERO, 5.0, "seconds that its end waits for detached calls")


@attrs.frozen(kw_only=True)
class RepositorySettings:
    """One repository of a tenant: a folder, or a git repository."""

    section: ClassVar[str] = "tenants[].repositories[]."

    name: str = attrs.field(validator=checked, metadata=required(rules.TEXT, "unique within its tenant"))
    path: Path | None = key(optional(rules.PATH), None, "the folder; either this or `git`")
    git: str | None = key(
        optional(rules.GIT),
        None,
        "a git URL, or the path of a git repository; either this or `path`",
        show=lambda git: repr(redacted_url(git) if isinstance(git, str) else git),
    )
    branch: str | None = key(optional(rules.TEXT), None, "the branch that is read from `git`", in_words="its head")
    cadence: float | None = key(
        optional(rules.DURATION), None, "seconds until it is due again", in_words="`sweep.cadence`"
    )
    enabled: bool = key(rules.FLAG, True, "whether sweeps take it")
    include: tuple[str, ...] = key(
        rules.PATTERNS,
        (),
        "only files that these name are indexed; in place of `sweep.include`",
        in_words="`sweep.include`",
    )
    exclude: tuple[str, ...] = key(
        rules.PATTERNS,
        (),
        "files that are left out, besides `sweep.exclude`; `!` takes back what an ignore file or the default list "
        "names",
        in_words="none",
    )

    def __attrs_post_init__(self) -> None:
        refuse(self, self._faults)

    def _faults(self) -> Iterator[Fault]:
        if self.path is None and self.git is None:
            yield Fault(("path",), 'missing; a repository needs either path or git: write path = "../folder"')
        if self.path is not None and self.git is not None:
            yield Fault(("git",), f"{shown(self.git)} stands beside path; a repository has one of the two: drop one")
        if self.branch is not None and self.git is None:
            yield Fault(("branch",), f"{shown(self.branch)} has no use beside path; name the repository as git instead")


@attrs.frozen(kw_only=True)
class TenantSettings:
    """A tenant and its repositories."""

    section: ClassVar[str] = "tenants[]."

    name: str = attrs.field(validator=checked, metadata=required(rules.TEXT, "unique among the tenants"))
    share: float = key(rules.POSITIVE, 1.0, "its share of engine time, beside the other tenants of a class")
    repositories: tuple[RepositorySettings, ...] = attrs.field(
        default=(), converter=as_tuple, validator=instances, metadata=tables(RepositorySettings, "array")
    )


@attrs.frozen(kw_only=True)
class PanelMember:
    """One who is asked."""

    section: ClassVar[str] = "ask.panel[]."

    provider: str = attrs.field(
        validator=checked, metadata=required(rules.TEXT, "the name of the provider that is asked")
    )
    model: str | None = key(optional(rules.TEXT), None, "the model that is asked", in_words="the provider's")
    alias: str = key(
        rules.TEXT,
        attrs.Factory(lambda self: self.model if self.model is not None else self.provider, takes_self=True),
        "the member's name in results; unique in the panel",
        in_words="`model`, else `provider`",
    )


@attrs.frozen(kw_only=True)
class AskSettings:
    """One question to many models."""

    section: ClassVar[str] = "ask."

    panel: tuple[PanelMember, ...] = attrs.field(
        default=(), converter=as_tuple, validator=instances, metadata=tables(PanelMember, "array")
    )
    max_fanout: int | None = key(
        optional(rules.COUNT), None, "members that are asked at most; the others are listed as omitted", in_words="all"
    )
    min_answer_chars: int = key(rules.COUNT_OR_ZERO, 80, "characters below which an answer is suspected; 0: never")
    recovery_grace: float = key(
        rules.DURATION_OR_ZERO, 120.0, "seconds that a command line program may go on after its timeout"
    )
    upload_timeout: float = key(rules.DURATION_OR_ZERO, 120.0, "seconds that one upload may take; 0: no bound")
    log: Path | None = key(
        optional(rules.PATH), None, "the `debug.jsonl` that gets a line for each attempt", in_words="off"
    )


@attrs.frozen(kw_only=True)
class ConsensusSettings:
    """Rounds of verdicts until all agree."""

    section: ClassVar[str] = "consensus."

    arbiter: str | None = key(
        optional(rules.TEXT),
        None,
        "the panel's alias, or the provider, that adjudicates",
        in_words="named by the caller",
    )
    max_rounds: int = key(rules.COUNT, 5, "rounds at most")
    max_wall: float = key(rules.DURATION, 1200.0, "seconds in all, checked inside a round too")


@attrs.frozen(kw_only=True)
class McpSettings:
    """The MCP server."""

    section: ClassVar[str] = "mcp."

    timeout: float = key(
        rules.DURATION,
        1500.0,
        "seconds that one request of a client may take; every other limit in it is cut to end before",
    )
