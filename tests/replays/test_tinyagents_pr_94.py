"""tinyhumansai/tinyagents PR 94: empty content with ``finish_reason: length``.

Right: ``truncated``, not a parse error, and not tried again.
"""

from __future__ import annotations

import pytest
from asking_replay import asked_engine

from embedkit.ask import Failure, ask_one
from embedkit.testing import Rule, open_scripted_engine
from embedkit.testing.engine_rules import Behaviour, always


@pytest.mark.parametrize("kind", ["openai-compatible", "grok", "openrouter"])
@pytest.mark.parametrize("message", ['{"content": ""}', '{"content": null}', '{"reasoning": "hm"}', "null"])
async def test_it_is_truncated(kind: str, message: str) -> None:
    body = f'{{"choices": [{{"message": {message}, "finish_reason": "length"}}]}}'.encode()
    async with (
        open_scripted_engine(rules=[Rule(always, Behaviour(body=body))]) as served,
        asked_engine(kind, served) as engine,
    ):
        result = await ask_one(engine, "q", "box")
    assert isinstance(result, Failure)
    assert (result.kind, result.attempts) == ("truncated", 1)
