"""Members of a fan-out whose engine is known to be down: they are left out, with the reason, and nothing is sent.

What is known comes from probes that others asked for, of this process and of those that share its knowledge base. It
counts while it is younger than ``probe.failing``, and only where it is about the engine as a whole: one that is there
and gives no embeddings may chat well. ``ask_one`` asks whoever it is given: somebody has to be the first to see that an
engine is back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from embedkit.ask.kinds import Kind
from embedkit.ask.results import Failure
from embedkit.errors import (
    ConnectionRefused,
    EmbedkitError,
    ProviderAuthError,
    ProviderTimeout,
    ProviderUnavailable,
    TransportClosed,
    durable_code,
)
from embedkit.settings import PanelMember

if TYPE_CHECKING:
    from embedkit.engine import Engine

_DOWN: Final[tuple[tuple[type[EmbedkitError], Kind], ...]] = (
    (ConnectionRefused, "network"),
    (TransportClosed, "network"),
    (ProviderAuthError, "auth"),
    (ProviderTimeout, "timeout"),
    (ProviderUnavailable, "upstream"),
)
_KINDS: Final[dict[str, Kind]] = {durable_code(error.code): kind for error, kind in _DOWN}


def known_failure(engine: Engine, member: PanelMember, model: str | None) -> Failure | None:
    """The failure of ``member`` if its engine is known to be down; ``None`` if it is not, or nobody knows."""
    if all(lane.name != member.provider for lane in engine.lanes):
        return None
    verdict = engine.probes.verdict(member.provider)
    if verdict.verdict != "degraded" or verdict.age is None or verdict.age >= engine.settings.probe.failing:
        return None
    kind = _KINDS.get(verdict.reason or "")
    if kind is None:
        return None
    return Failure(
        alias=member.alias,
        provider=member.provider,
        model=model,
        kind=kind,
        message=f"provider {member.provider}: degraded, as a probe found {verdict.age:.0f} s ago ({verdict.reason})",
        code=verdict.reason,
    )


async def learn_health(engine: Engine) -> None:
    """Take in what other processes have found out, where there is a knowledge base that they share. Sends nothing.

    Raises:
        StoreError: The knowledge base cannot be read.

    Cancellation:
        Nothing was changed.
    """
    from embedkit.ask.roster import chatting_lanes

    if not engine.settings.store.path.exists():
        return
    names = chatting_lanes(engine.settings)
    if not names:
        return
    await engine.knowledge(create=False, may_be_read_only=True)
    for name in names:
        engine.lane(name)
        await engine.probes.read(name)
