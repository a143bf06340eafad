"""What an adapter is: how one model of one provider is asked, once."""

from __future__ import annotations

from typing import Protocol

from embedkit.ask.results import Question, Said


class Adapter(Protocol):
    """How one model of one provider is asked. It makes one attempt; tickets, retries and results are not its business.

    One that keeps to ``question.limit`` by itself, since it has more to do at that moment than to stop, says so in an
    attribute ``keeps_limit``, which others leave out.
    """

    async def attempt(self, question: Question) -> Said:
        """Ask, and return what was said, whatever it is worth.

        Raises:
            ProviderError: One class a cause. Anything else that is raised is a failure of kind ``unknown``.

        Cancellation:
            Nothing of the attempt is left in this process: no socket, no child.
        """
        ...
