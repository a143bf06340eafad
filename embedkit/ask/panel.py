"""``ask_one``, ``ask_all`` and ``panel``: one question, and every answer accounted for.

A fan-out is a nursery. Each member's task writes its own place in the list of results, so that the order is the
panel's whoever is first, and a member that raises, whatever it raises, is one result. Cancelling the caller cancels
them all.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import trio

from embedkit.admission.waiting import Priority
from embedkit.ask.asking import Asked, Deadline, ask_member
from embedkit.ask.attempts import Attempts, Tool
from embedkit.ask.debug_log import DebugLog
from embedkit.ask.health import known_failure
from embedkit.ask.results import Failure, Question, Replies, Result
from embedkit.ask.roster import Roster, members_of
from embedkit.errors import UsageError
from embedkit.settings import Limit, PanelMember

if TYPE_CHECKING:
    from embedkit.ask.adapter import Adapter
    from embedkit.engine import Engine

OnResult = Callable[[Result], object]


@attrs.frozen
class Panel:
    """Who would be asked.

    Attributes:
        asked: In panel order.
        omitted: Aliases over ``max_fanout``.
        unavailable: Those who cannot be asked, each with the reason.
    """

    asked: tuple[PanelMember, ...]
    omitted: tuple[str, ...]
    unavailable: dict[str, str]


@attrs.frozen(eq=False)
class Seating:
    """A panel with its adapters: ``places`` are its members in order, those left out by ``max_fanout`` excepted."""

    roster: Roster
    places: tuple[Asked | Failure, ...]
    omitted: tuple[str, ...]

    @property
    def unavailable(self) -> dict[str, str]:
        """Those who cannot be asked, each with the reason."""
        return {place.alias: place.message for place in self.places if isinstance(place, Failure)}


def seat(
    engine: Engine,
    wanted: Sequence[str | PanelMember] | None = None,
    adapters: Mapping[str, Adapter] | None = None,
    *,
    regards_health: bool = True,
) -> Seating:
    """Find an adapter for each member. Those who cannot be asked take up nothing of ``max_fanout``.

    Args:
        engine: Whose settings, keys and probes.
        wanted: See ``panel``.
        adapters: Your own, by alias.
        regards_health: Whether a member whose engine is known to be down cannot be asked.

    Raises:
        UsageError: There is none of a name, or two of one, or nobody at all.
    """
    members = members_of(engine.settings, wanted)
    aliases = [member.alias for member in members]
    twice = next((alias for alias in aliases if aliases.count(alias) > 1), None)
    if twice is not None:
        raise UsageError(f"{twice!r} is in the panel twice; give the second another alias")
    roster = Roster(engine, adapters)
    most = engine.settings.ask.max_fanout
    places: list[Asked | Failure] = []
    omitted: list[str] = []
    for member in members:
        place = roster.place(member)
        if regards_health and isinstance(place, Asked) and member.alias not in (adapters or {}):
            place = known_failure(engine, member, place.model) or place
        if isinstance(place, Asked) and most is not None and sum(isinstance(p, Asked) for p in places) >= most:
            omitted.append(member.alias)
        else:
            places.append(place)
    return Seating(roster, tuple(places), tuple(omitted))


def panel(
    engine: Engine,
    wanted: Sequence[str | PanelMember] | None = None,
    *,
    adapters: Mapping[str, Adapter] | None = None,
) -> Panel:
    """Who ``ask_all`` would ask. Nothing is sent.

    Args:
        engine: Whose settings and keys.
        wanted: Aliases of the panel, names of providers, or members made in code; else the settings' panel.
        adapters: Your own, by alias.

    Raises:
        UsageError: There is none of a name, or two of one, or nobody at all.
    """
    seating = seat(engine, wanted, adapters)
    asked = tuple(place.member for place in seating.places if isinstance(place, Asked))
    return Panel(asked, seating.omitted, seating.unavailable)


async def ask_one(
    engine: Engine,
    question: str,
    who: str | PanelMember,
    *,
    timeout: float | None = None,
    deadline: float | Limit | None = None,
    priority: Priority = "interactive",
    files: Sequence[Path] = (),
    adapter: Adapter | None = None,
) -> Result:
    """Ask one model, and return its answer or its failure.

    Args:
        engine: Through whose lanes.
        question: The prompt.
        who: An alias of the panel, the name of a provider, or a member made in code.
        timeout: Seconds for one attempt, to the last byte; else the settings' ladder.
        deadline: Seconds from now for everything: queue, attempts and waits between them; a ``Limit`` says in
            messages whose they are.
        priority: ``interactive`` if somebody waits for it.
        files: Sent along, where the provider can.
        adapter: Your own, in place of what the settings would make.

    Raises:
        UsageError: There is nobody of that name.

    Cancellation:
        A queued ticket has left its lane and was never sent. A call that was out is aborted, its connection closed or
        its program ended; one of an Ollama lane is detached, as everything is there.
    """
    (member,) = members_of(engine.settings, [who])
    given = None if adapter is None else {member.alias: adapter}
    seating = seat(engine, [member], given, regards_health=False)
    asking = Asking(engine, seating, "ask_one", timeout, Deadline.of(deadline), priority, tuple(files))
    return await asking.ask(seating.places[0], question)


async def ask_all(
    engine: Engine,
    question: str,
    wanted: Sequence[str | PanelMember] | None = None,
    *,
    timeout: float | None = None,
    deadline: float | Limit | None = None,
    priority: Priority = "interactive",
    files: Sequence[Path] = (),
    adapters: Mapping[str, Adapter] | None = None,
    on_result: OnResult | None = None,
) -> Replies:
    """Ask every member of a panel at once, and return one result for each, in panel order.

    Args:
        engine: Through whose lanes.
        question: The prompt.
        wanted: Aliases of the panel, names of providers, or members made in code; else the settings' panel.
        timeout: Seconds for one attempt; else the settings' ladder, for each its own.
        deadline: Seconds from now for everything; a ``Limit`` says in messages whose they are.
        priority: ``interactive`` if somebody waits for it.
        files: Sent along, where a provider can.
        adapters: Your own, by alias.
        on_result: Called with each result as it settles.

    Raises:
        UsageError: There is none of a name, or two of one, or nobody at all.

    Cancellation:
        Every member's question is cancelled, as in ``ask_one``.
    """
    seating = seat(engine, wanted, adapters)
    asking = Asking(engine, seating, "ask_all", timeout, Deadline.of(deadline), priority, tuple(files))
    results = await asking.ask_each([(place, question) for place in seating.places], on_result)
    return Replies(results=results, omitted=seating.omitted, unavailable=seating.unavailable)


@attrs.define(eq=False)
class Asking:
    """What the questions of one call share."""

    engine: Engine
    seating: Seating
    tool: Tool
    timeout: float | None
    deadline: Deadline | None
    priority: Priority
    files: tuple[Path, ...] = ()
    round: int | None = None
    call: str = attrs.field(factory=lambda: secrets.token_hex(6))
    log: DebugLog | None = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        path = self.engine.settings.ask.log
        self.log = None if path is None else DebugLog(path)

    async def ask(self, place: Asked | Failure, question: str) -> Result:
        """Ask one, who may be known to be unavailable.

        Cancellation:
            As ``ask_one``.
        """
        if isinstance(place, Failure):
            await trio.lowlevel.checkpoint()
            return place
        member = place.member
        return await ask_member(
            self.engine,
            place,
            Question(question, self.seating.roster.limit(member, self.timeout), self.files),
            deadline=self.deadline,
            priority=self.priority,
            run=self.call,
            attempts=Attempts(self.log, self.tool, member.provider, place.model, self.call, self.round),
        )

    async def ask_each(
        self, questions: Sequence[tuple[Asked | Failure, str]], on_result: OnResult | None = None
    ) -> tuple[Result, ...]:
        """Ask all at once; results stand in the order of ``questions``.

        Cancellation:
            As ``ask_all``.
        """
        results: list[Result | None] = [None] * len(questions)

        async def ask_into(index: int, place: Asked | Failure, question: str) -> None:
            result = results[index] = await self.ask(place, question)
            if on_result is not None:
                on_result(result)

        async with trio.open_nursery() as nursery:
            for index, (place, question) in enumerate(questions):
                nursery.start_soon(ask_into, index, place, question)
        return tuple(result for result in results if result is not None)
