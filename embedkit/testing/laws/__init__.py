"""The seven laws as plays: each file is one law, each play one way of breaking it."""

from __future__ import annotations

from embedkit.testing.laws import clocks, conservation, fair_shares, notify, retries, settle, withdraw
from embedkit.testing.laws.scenario import Scenario

LAWS = (withdraw.LAW, settle.LAW, notify.LAW, fair_shares.LAW, retries.LAW, conservation.LAW, clocks.LAW)


def scenarios_of(*laws: int) -> list[Scenario]:
    """The scenarios of these laws; of all, if none is named."""
    return [scenario for law in LAWS if not laws or law.number in laws for scenario in law.scenarios]
