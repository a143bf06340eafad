"""Law 4 in words: whose turn it is in a lane, and who is owed how much. Pure.

Accounts mean something only in comparison with others that wait, so only those are spoken of. Seconds are those of the
accounts: engine time, divided by the share. Which class is next is not worked out again here: it is the first of
``accounts`` that waits and is not held.

Tested in ``tests/admission/test_whose_turn.py``, which is the table of what is said when.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from embedkit.admission.order import Account
from embedkit.admission.snapshot import LaneSnapshot

# What a class is called, and its verb.
_CALLED = {"interactive": ("people", "are"), "batch": ("batch", "is"), "probe": ("probes", "are")}


def whose_turn(lane: LaneSnapshot, age: float = 0.0) -> str:
    """Who is next in ``lane``, and who after how much: "people are 12 s ahead; batch is next at 30".

    Args:
        lane: As it was.
        age: Seconds since then. Only the engine's wish to be left alone passes with time.
    """
    return "; ".join(_clauses(lane, age))


def _clauses(lane: LaneSnapshot, age: float) -> Iterator[str]:
    if lane.held_for > age:
        yield f"the engine asked to be left alone for another {_number(lane.held_for - age)} s"
    waiting = [one for one in lane.accounts if one.queued]
    free = [one for one in waiting if one.flow not in lane.held_by_ceiling]
    if free:
        yield from _of_classes(free[0], waiting, lane.held_by_ceiling)
    elif not waiting:
        yield _without_accounts(lane.queued)
    held = [one for one in waiting if one not in free]
    if held:
        verb = "are" if len(held) > 1 else _verb(held[0])
        units = "1 unit" if lane.ceiling == 1 else f"{lane.ceiling} units"
        yield f"{' and '.join(map(_name, held))} {verb} held by the ceiling of {units}"
    if free:
        yield from _of_tenants(free[0], lane.furthest_behind, is_sole=len(waiting) == 1)


def _of_classes(first: Account, waiting: Sequence[Account], held: Sequence[str]) -> Iterator[str]:
    """How ``first``, which is next, stands to each other class that waits."""
    if len(waiting) == 1:
        yield f"{_name(first)} {_verb(first)} next; nobody else waits"
        return
    is_pair = len(waiting) == 2
    others = [one for one in waiting if one is not first]
    # The class with the lesser offset goes first until it is ahead by the difference.
    before = [one for one in others if one.offset < first.offset]
    for senior in before:
        ahead = senior.account - first.account
        past = f", past {_number(first.offset - senior.offset)}" if ahead >= first.offset - senior.offset else ""
        yield f"{_name(senior)} {_verb(senior)} {_relation(ahead, first, is_pair=is_pair)}{past}"
    if before:
        yield f"{_name(first)} {_verb(first)} next"
    for junior in (one for one in others if one not in before):
        ahead = first.account - junior.account
        is_ahead = _number(ahead) != "0" and ahead > 0
        next_word = "" if is_ahead or before else "next, "
        yield f"{_name(first)} {_verb(first)} {next_word}{_relation(ahead, junior, is_pair=is_pair)}"
        if junior.flow not in held:
            at = _number(junior.offset - first.offset)
            yield f"{_name(junior)} {_verb(junior)} next at {at}{'' if is_ahead else ' ahead'}"


def _of_tenants(first: Account, behind: Sequence[Account], *, is_sole: bool) -> Iterator[str]:
    """Which tenant is next in the class that is next, where there is a choice."""
    tenants = [one for one in behind if one.within == first.flow]
    if len(tenants) < 2:
        return
    least, second = tenants[:2]
    among = "" if is_sole else f"among {_name(first)}, "
    apart = second.account - least.account
    relation = "level with" if _number(apart) == "0" else f"{_number(apart)} s behind"
    yield f"{among}{_tenant(least, 'tenant ')} is next, {relation} {_tenant(second)}"


def _without_accounts(queued: Mapping[str, int]) -> str:
    """No class with an account waits: nobody does, or the order is one that keeps none."""
    if not any(queued.values()):
        return "nobody waits"
    counts = ", ".join(f"{_CALLED.get(of_class, (of_class,))[0]} {count:,}" for of_class, count in queued.items())
    return f"waiting: {counts}; this lane's order keeps no accounts"


def _relation(ahead: float, other: Account, *, is_pair: bool) -> str:
    seconds = _number(abs(ahead))
    if seconds == "0":
        return f"level with {_name(other)}"
    if ahead < 0:
        return f"{seconds} s behind {_name(other)}"
    return f"{seconds} s ahead" if is_pair else f"{seconds} s ahead of {_name(other)}"


def _name(of_class: Account) -> str:
    return _CALLED.get(of_class.flow or "", (str(of_class.flow), ""))[0]


def _verb(of_class: Account) -> str:
    return _CALLED.get(of_class.flow or "", ("", "is"))[1]


def _tenant(one: Account, title: str = "") -> str:
    if one.flow is None:
        return "work without a tenant"
    # A name is its maker's; a line feed or an escape sequence in it is not for a terminal.
    return title + (one.flow if one.flow.isprintable() else one.flow.encode("unicode_escape").decode("ascii"))


def _number(seconds: float) -> str:
    """One digit after the point where it says something."""
    text = f"{seconds:,.0f}" if abs(seconds) >= 100 else f"{seconds:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text
