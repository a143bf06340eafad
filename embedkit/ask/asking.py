"""One question through the lane of its provider: attempts are the ticket's, and what comes out is a result.

Local engines have the engine's own lane in front of them, the one that embeds through them as well: one engine, one
queue. What is remote, or a program, has none (``Unqueued``): it is asked at once.

Cancelled is no result: it passes through everything here.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import attrs
import trio

from embedkit.admission.ticket import Ids, Ticket
from embedkit.admission.unqueued import Unqueued
from embedkit.admission.waiting import Priority
from embedkit.ask.attempts import Attempts
from embedkit.ask.failing import AskFailed, Patience, StreamSilent, failed_attempt, kind_of_failure
from embedkit.ask.floor import is_answer
from embedkit.ask.results import Answer, Failure, Question, Result, Said
from embedkit.errors import DeadlineExceeded, EmbedkitError, ProviderError, QueueWaitExceeded
from embedkit.providers.retry import unqueued_policy
from embedkit.settings import Limit, PanelMember, ProviderSettings

if TYPE_CHECKING:
    from embedkit.ask.adapter import Adapter
    from embedkit.engine import Engine

# A lane gives a person's attempt without a deadline a limit of seconds, made for embeddings, and tries a timeout again.
# With a deadline it does neither. Ten years stand for "none".
_NO_DEADLINE = 10 * 365 * 86_400.0
_LOCAL = frozenset({"openai-compatible", "ollama"})


@attrs.frozen(eq=False)
class Asked:
    """A member of a panel who can be asked.

    Attributes:
        member: Who.
        described: Its provider.
        adapter: How.
        shortest: Characters below which an answer is suspected.
    """

    member: PanelMember
    described: ProviderSettings
    adapter: Adapter
    shortest: int

    @property
    def model(self) -> str | None:
        """The model that is asked."""
        return self.described.model if self.member.model is None else self.member.model


@attrs.frozen
class Deadline:
    """When everything about a question has to be over.

    Attributes:
        at: Instant, on trio's clock.
        seconds: How long that was from the question.
        rung: Who said so, as messages name it.
    """

    at: float
    seconds: float
    rung: str

    @classmethod
    def of(cls, given: float | Limit | None, rung: str = "the request's deadline") -> Deadline | None:
        """From now; ``None`` for none."""
        if given is None:
            return None
        limit = given if isinstance(given, Limit) else Limit(given, rung)
        return cls(trio.current_time() + limit.seconds, limit.seconds, limit.rung)


async def ask_member(
    engine: Engine,
    asked: Asked,
    question: Question,
    *,
    deadline: Deadline | None,
    priority: Priority,
    run: str | None,
    attempts: Attempts,
) -> Result:
    """Ask one member, with its retries, and return what it came to.

    Cancellation:
        A queued ticket has left its lane. A call that was out is aborted, or detached where it is Ollama's.
    """
    member, began_at = asked.member, trio.current_time()
    limit = None if getattr(asked.adapter, "keeps_limit", False) else question.limit
    ticket = Ticket(
        priority=priority,
        timeout=None if limit is None else limit.seconds,
        limit_name=None if limit is None else limit.rung,
        deadline_at=began_at + _NO_DEADLINE if deadline is None else deadline.at,
        ids=Ids(stage="ask", role="chat", run=run),
    )

    async def attempt() -> Said:
        return await _attempt(asked, question, attempts)

    said: Said | None = None
    failure: Exception | None = None
    try:
        said = await _through_its_lane(engine, asked, attempt, ticket)
    except Exception as error:
        failure = error
    finally:
        elapsed = trio.current_time() - began_at
        attempts.end(failure)
    if said is not None:
        return Answer(
            alias=member.alias,
            provider=member.provider,
            model=said.model or asked.model,
            text=said.text,
            usage=said.usage,
            elapsed=elapsed,
            attempts=ticket.attempts,
            thread=said.thread,
        )
    assert failure is not None
    failed = failure_of_member(member, asked.model, failure, elapsed, ticket.attempts)
    if deadline is not None and isinstance(failure, DeadlineExceeded | QueueWaitExceeded):
        return attrs.evolve(failed, message=f"{failed.message} ({deadline.rung}: {deadline.seconds:g} s)")
    return failed


async def _attempt(asked: Asked, question: Question, attempts: Attempts) -> Said:
    name = asked.member.provider
    with attempts.one() as note:
        try:
            said = await asked.adapter.attempt(question)
            if not is_answer(said.text, asked.described.answer_floor, asked.shortest):
                raise AskFailed("empty", f"provider {name}: no answer came, or only its announcement", code="EMPTY")
        except Exception as error:
            failed = failed_attempt(error, name, Patience.of(asked.described))
            note.failed(failed)
            if failed is error:
                raise
            raise failed from error
        note.answered(said)
    return said


async def _through_its_lane(
    engine: Engine, asked: Asked, attempt: Callable[[], Awaitable[Said]], ticket: Ticket
) -> Said:
    name, described = asked.member.provider, asked.described
    if described.kind in _LOCAL:
        return await engine.lane(name).run(lambda _: attempt(), ticket)
    unqueued = Unqueued(
        name,
        connect=_no_connection,
        ledger=engine.ledger,
        retry=unqueued_policy(max_retry_after=described.max_retry_after, over_cap=described.over_cap),
        model=asked.model or described.kind,
    )
    try:
        return await unqueued.run(lambda _: attempt(), ticket)
    finally:
        await unqueued.aclose()  # closes nothing that waits


@asynccontextmanager
async def _no_connection() -> AsyncGenerator[None]:
    """Each attempt opens its own, or starts its own child."""
    yield


def failure_of_member(
    member: PanelMember, model: str | None, error: Exception, elapsed: float = 0.0, attempts: int = 0
) -> Failure:
    """What ``error`` is as a result of ``member``."""
    is_ours = isinstance(error, EmbedkitError)
    message = str(error) if is_ours else f"provider {member.provider}: it failed ({type(error).__name__})"
    return Failure(
        alias=member.alias,
        provider=member.provider,
        model=model,
        kind=kind_of_failure(error),
        message=" ".join(message.split()),
        retry_after=error.retry_after if isinstance(error, ProviderError) else None,
        elapsed=elapsed,
        attempts=attempts,
        code=error.code if isinstance(error, EmbedkitError) else None,
        status=error.status if isinstance(error, ProviderError) else None,
        partial=error.partial if isinstance(error, AskFailed | StreamSilent) else None,
    )
