"""A gateway's snapshot as lines of text. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_SHOWN = 10
_BAR = 20


def top_lines(now: Mapping[str, Any]) -> Iterator[str]:
    """What ``embedkit top`` shows."""
    state = "ending" if now["is_closing"] else f"up for {seconds(now['at'] - now['started_at'])}"
    yield f"embedkit gateway, {state}"
    for lane in now["lanes"]:
        yield ""
        yield from _lane(lane)
    for run in now["runs"]:
        yield ""
        yield f"run {_name(run['run'])} of {_name(run['tenant'])}: circuit open: {run['cause']}"
    if now["last"]:
        yield ""
        heads = f"{'last':<14}{'engine':<12}{'class':<13}{'tenant':<16}{'outcome':<11}"
        yield f"{heads}{'queue':>9}{'provider':>9}  attempts"
        for one in now["last"][:_SHOWN]:
            yield (
                f"{one['ticket']:<14}{one['provider'][:11]:<12}{one['class']:<13}{_name(one['tenant'])[:15]:<16}"
                f"{one['outcome']:<11}{seconds(one['queue_wait']):>9}{seconds(one['provider_time']):>9}"
                f"  {one['attempts']}"
            )


def _lane(lane: Mapping[str, Any]) -> Iterator[str]:
    verdict = lane["verdict"]["verdict"]
    yield f"{lane['provider']}: {lane['model']} at {lane['engine']} ({lane['kind']}), {verdict}"
    used = round(_BAR * min(lane["weight_in_flight"] / lane["capacity"], 1))
    waiting = ", ".join(f"{count} {of_class}" for of_class, count in lane["queued"].items()) or "nobody"
    yield (
        f"  [{'#' * used}{'.' * (_BAR - used)}] {lane['weight_in_flight']} of {lane['capacity']} in flight; "
        f"waiting: {waiting}; longest wait {seconds(lane['longest_wait'])}; "
        f"an answer takes {seconds(lane['mean_seconds'])}"
    )
    totals = lane["totals"]
    words = ("offered", "succeeded", "failed", "withdrawn", "shed", "aborted")
    yield "  " + "  ".join(f"{word} {totals[word]}" for word in words)
    for title, entries in (("in a slot", lane["slots"]), ("waits", lane["waiting"])):
        for one in entries[:_SHOWN]:
            yield (
                f"  {title:<11}{one['ticket']:<14}{one['class']:<13}{_name(one['tenant'])[:15]:<16}"
                f"{one['inputs']:>5} inputs{seconds(one['since']):>9}"
            )
    more = lane["waiting_more"] + max(len(lane["waiting"]) - _SHOWN, 0)
    if more:
        yield f"  and {more} more"


def seconds(value: float | None) -> str:
    """A duration as a person reads it."""
    if value is None:
        return "-"
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s"


def _name(value: object) -> str:
    text = "-" if value is None else str(value)
    # A tenant's name is anybody's: nothing in it may move the cursor.
    return "".join(character if character.isprintable() else "?" for character in text)
