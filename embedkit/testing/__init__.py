"""What others hold their own lanes, providers and engines to.

- ``check_lane`` and ``LaneContract``: the seven laws, on a lane of yours. ``LaneUnderTest`` says what it needs, and
  ``LaneBase`` keeps most of that for a lane that has none of it. ``play_scenario`` plays one scenario alone.
- ``ProviderContract``: the same for a provider; ``StoreContract`` for a knowledge base.
- ``open_scripted_engine`` and ``open_memory_engine``: engines that do what a script says.
- ``wait_until_queued`` and ``wait_until_in_flight``: "A is on the wire, B is queued", without polling.
"""

from embedkit.testing.check import check_lane, judge_lane, play_scenario, scenario_names
from embedkit.testing.engine_memory import MemoryEngine, open_memory_engine
from embedkit.testing.engine_rules import Behaviour, Rule
from embedkit.testing.lane_base import LaneBase, LaneEntry
from embedkit.testing.lane_contract import LaneContract
from embedkit.testing.lane_under_test import Feature, LaneUnderTest, MakeLane, Settlement
from embedkit.testing.provider_contract import ProviderContract
from embedkit.testing.report import LawReport, LawVerdict
from embedkit.testing.schedules import seed_schedule
from embedkit.testing.scripted_engine import ScriptedEngine, open_scripted_engine
from embedkit.testing.store_contract import StoreContract
from embedkit.testing.trace import Finding, LawBroken
from embedkit.testing.waits import wait_until_in_flight, wait_until_queued

__all__ = [
    "Behaviour",
    "Feature",
    "Finding",
    "LaneBase",
    "LaneContract",
    "LaneEntry",
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
    "StoreContract",
    "check_lane",
    "judge_lane",
    "open_memory_engine",
    "open_scripted_engine",
    "play_scenario",
    "scenario_names",
    "seed_schedule",
    "wait_until_in_flight",
    "wait_until_queued",
]
