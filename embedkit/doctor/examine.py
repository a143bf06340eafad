"""Run every check, each in a task of its own; findings stand in the order of the list."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import trio

from embedkit.doctor.extras import check_extras
from embedkit.doctor.finding import Examination, Finding, Subject
from embedkit.doctor.folders import check_folders
from embedkit.doctor.keys import check_keys
from embedkit.doctor.programs import check_programs

Check = Callable[[Subject], Awaitable[Sequence[Finding]]]

CHECKS: tuple[Check, ...] = (check_keys, check_programs, check_folders, check_extras)


async def examine(subject: Subject, checks: Sequence[Check] = CHECKS) -> Examination:
    """What ``checks`` find.

    Cancellation:
        Programs that were asked for their version were ended.
    """
    found: list[Sequence[Finding]] = [()] * len(checks)

    async def run(index: int, check: Check) -> None:
        found[index] = await check(subject)

    async with trio.open_nursery() as nursery:
        for index, check in enumerate(checks):
            nursery.start_soon(run, index, check)
    return Examination(tuple(finding for findings in found for finding in findings))
