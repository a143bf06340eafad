"""What a scripted engine does with a request: predicates that pick requests, and behaviours that they get.

A rule is a pair. The first whose predicate holds decides; without one the engine simply answers::

    rules = [
        Rule(nth(1), hold(released)),
        Rule(containing("poison"), status(500, "unsupported value: NaN")),
        Rule(always, busy(retry_after="5"), times=2),
    ]
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal

import attrs
import trio

from embedkit.testing import engine_answers
from embedkit.testing.engine_answers import Reshape

if TYPE_CHECKING:
    from embedkit.testing.engine_wire import EngineRequest

Sends = Literal["all", "half", "headers", "nothing"]
Then = Literal["keep", "close", "reset", "stall"]


@attrs.frozen
class Behaviour:
    """How one request goes.

    Attributes:
        status: Of the reply.
        headers: Added to the reply's.
        body: Replaces the reply's body, where given.
        says: Makes the body an error with this message, in the words of the request's language.
        rewrite: Applied to the body.
        reshape: Applied to the vectors before they are written.
        computes: Whether the request takes a slot and its service time; a refusal does not.
        extra: Seconds on top of the service time.
        until: Waited for before the service time begins, in the slot.
        sends: How much of the reply goes out.
        then: What becomes of the connection afterwards.
        every: Seconds between two pieces of a reply that streams.
    """

    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    says: str | None = None
    rewrite: Callable[[bytes], bytes] | None = None
    reshape: Reshape | None = None
    computes: bool = True
    extra: float = 0.0
    until: trio.Event | None = None
    sends: Sends = "all"
    then: Then = "keep"
    every: float = 0.0


@attrs.define(eq=False)
class Rule:
    """``then`` for the requests that ``when`` holds for, at most ``times`` of them."""

    when: Callable[[EngineRequest], bool]
    then: Behaviour
    times: int | None = None

    def takes(self, request: EngineRequest) -> bool:
        """Whether the rule decides about ``request``; counts it if so."""
        if self.times == 0 or not self.when(request):
            return False
        if self.times is not None:
            self.times -= 1
        return True


def always(request: EngineRequest) -> bool:
    """Holds for every request."""
    return True


def nth(*numbers: int) -> Callable[[EngineRequest], bool]:
    """Holds for the requests of these numbers, counted from 1 in order of arrival."""
    return lambda request: request.number in numbers


def containing(part: str) -> Callable[[EngineRequest], bool]:
    """Holds for requests of which an input contains ``part``."""
    return lambda request: any(part in text for text in request.texts)


def noted_in(requests: list[EngineRequest]) -> Rule:
    """A rule that decides about no request and adds each one to ``requests``."""

    def note(request: EngineRequest) -> bool:
        requests.append(request)
        return False

    return Rule(note, Behaviour())


def answer() -> Behaviour:
    """The right answer."""
    return Behaviour()


def delay(seconds: float) -> Behaviour:
    """The right answer, later."""
    return Behaviour(extra=seconds)


def hold(released: trio.Event) -> Behaviour:
    """The right answer once the test sets ``released``; the slot is taken meanwhile."""
    return Behaviour(until=released)


def status(code: int, message: str = "refused", headers: Mapping[str, str] | None = None) -> Behaviour:
    """A refusal with an error object, without computing anything."""
    return Behaviour(status=code, headers=tuple((headers or {}).items()), says=message, computes=False)


def busy(*, code: int = 429, retry_after: str | None = None) -> Behaviour:
    """A refusal that asks to come back, with ``Retry-After`` where it is given."""
    return status(code, "try later", {} if retry_after is None else {"Retry-After": retry_after})


def error_in_200(code: int | str, message: str = "rate limited") -> Behaviour:
    """Status 200, with an error object and nothing else."""
    return Behaviour(body=json.dumps({"error": {"code": code, "message": message}}).encode(), computes=False)


def html() -> Behaviour:
    """Status 200 with a web page."""
    return Behaviour(body=b"<!doctype html><html><body>Welcome</body></html>", headers=(("Content-Type", "text/html"),))


def half_json() -> Behaviour:
    """The first half of the right body, as if it were the whole."""
    return Behaviour(rewrite=lambda body: body[: len(body) // 2])


def empty_data() -> Behaviour:
    """The right shape without a vector."""
    return Behaviour(reshape=lambda items: [])


def reorder() -> Behaviour:
    """The vectors in reverse, each with its right index."""
    return Behaviour(reshape=lambda items: items[::-1])


def short() -> Behaviour:
    """The last vector is missing."""
    return Behaviour(reshape=lambda items: items[:-1])


def long() -> Behaviour:
    """One vector too many."""
    return Behaviour(reshape=engine_answers.with_one_more)


def duplicate_index() -> Behaviour:
    """The last vector has the first one's index."""
    return Behaviour(reshape=engine_answers.with_first_index_twice)


def sparse_index() -> Behaviour:
    """The last index is one too high."""
    return Behaviour(reshape=engine_answers.with_a_gap)


def without_index() -> Behaviour:
    """No vector has an index."""
    return Behaviour(reshape=engine_answers.without_index)


def nan(index: int = 0) -> Behaviour:
    """One number of one vector is NaN."""
    return Behaviour(reshape=engine_answers.with_number(index, float("nan")))


def null(index: int = 0) -> Behaviour:
    """One number of one vector is null."""
    return Behaviour(reshape=engine_answers.with_number(index, None))


def wrong_dimension(dimension: int, index: int = 0) -> Behaviour:
    """One vector has another dimension."""
    return Behaviour(reshape=engine_answers.with_dimension(index, dimension))


def stall_before_reply() -> Behaviour:
    """Not a byte, on a connection that stays open."""
    return Behaviour(sends="nothing", then="stall")


def stall_after_headers() -> Behaviour:
    """The headers, then silence."""
    return Behaviour(sends="headers", then="stall")


def stall_mid_body() -> Behaviour:
    """The headers and half the body, then silence."""
    return Behaviour(sends="half", then="stall")


def cut_before_reply() -> Behaviour:
    """The connection is closed in place of a reply."""
    return Behaviour(sends="nothing", then="close")


def cut_after_headers() -> Behaviour:
    """The connection is closed after the headers."""
    return Behaviour(sends="headers", then="close")


def cut_mid_body() -> Behaviour:
    """The connection is closed in the middle of the body."""
    return Behaviour(sends="half", then="close")


def reset() -> Behaviour:
    """The connection is reset in place of a reply."""
    return Behaviour(sends="nothing", then="reset")


def close_after_reply() -> Behaviour:
    """The right answer; then the connection is closed without a word, as an engine closes idle ones."""
    return Behaviour(then="close")


def quota(requests: int, seconds: float) -> Rule:
    """A rule that refuses more than ``requests`` in each window of ``seconds``, which begins with the first request.

    ``Retry-After`` says when the next window begins.
    """
    opened_at: float | None = None
    taken = 0
    rule = Rule(always, busy())

    def is_over(_: EngineRequest) -> bool:
        nonlocal opened_at, taken
        now = trio.current_time()
        if opened_at is None or now >= opened_at + seconds:
            opened_at, taken = now, 0
        taken += 1
        rule.then = busy(retry_after=str(math.ceil(opened_at + seconds - now)))
        return taken > requests

    rule.when = is_over
    return rule
