"""What others hold their own lanes, providers and engines to.

- ``check_lane`` and ``LaneContract``: the seven laws, on a lane of yours. ``LaneUnderTest`` says what it needs.
- ``ProviderContract``: the same for a provider.
- ``open_scripted_engine`` and ``open_memory_engine``: engines that do what a script says.
- ``wait_until_queued`` and ``wait_until_in_flight``: "A is on the wire, B is queued", without polling.
"""

from embedkit.testing.check import LawReport, LawVerdict, check_lane, judge_lane
from embedkit.testing.engine_memory import MemoryEngine, open_memory_engine
from embedkit.testing.engine_rules import Behaviour, Rule
from embedkit.testing.lane_contract import LaneContract
from embedkit.testing.lane_under_test import LaneUnderTest, MakeLane, Settlement
from embedkit.testing.provider_contract import ProviderContract
from embedkit.testing.schedules import seed_schedule
from embedkit.testing.scripted_engine import ScriptedEngine, open_scripted_engine
from embedkit.testing.trace import LawBroken
from embedkit.testing.waits import wait_until_in_flight, wait_until_queued

__all__ = [
    "Behaviour",
    "LaneContract",
    "LaneUnderTest",
    "LawBroken",
    "LawReport",
    "LawVerdict",
    "MakeLane",
    "MemoryEngine",
    "ProviderContract",
    "Rule",
    "ScriptedEngine",
    "Settlement",
    "check_lane",
    "judge_lane",
    "open_memory_engine",
    "open_scripted_engine",
    "seed_schedule",
    "wait_until_in_flight",
    "wait_until_queued",
]
