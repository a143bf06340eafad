"""One question to many models, and every answer accounted for.

::

    async with embedkit.open_engine(embedkit.load_settings()) as engine:
        replies = await embedkit.ask.ask_all(engine, "Is this lane fair?")

Nothing here raises for a provider's failure: what comes back is an ``Answer`` or a ``Failure`` for each who was asked.
"""

from embedkit.ask.adapter import Adapter
from embedkit.ask.consensus import Consensus, Round, consensus
from embedkit.ask.failing import AskFailed
from embedkit.ask.panel import Panel, ask_all, ask_one, panel
from embedkit.ask.results import Answer, Failure, Question, Replies, Result, Said, Usage

__all__ = [
    "Adapter",
    "Answer",
    "AskFailed",
    "Consensus",
    "Failure",
    "Panel",
    "Question",
    "Replies",
    "Result",
    "Round",
    "Said",
    "Usage",
    "ask_all",
    "ask_one",
    "consensus",
    "panel",
]
