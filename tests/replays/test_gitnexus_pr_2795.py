"""abhigyanpatwari/GitNexus PR 2795: 200 with HTML, with half a document, with no data; a socket cut after the
headers.

Right: each is a failure of its own kind with its own words, and the lane goes on.
"""

from __future__ import annotations

import pytest
from replay_lane import embed, ollama_lane, openai_lane

from embedkit.errors import ProviderError, ResponseInvalid, TransportClosed
from embedkit.testing.engine_rules import Behaviour, Rule, cut_after_headers, empty_data, half_json, html, nth
from embedkit.testing.scripted_engine import open_scripted_engine

CASES = [
    (html(), ResponseInvalid, "an HTML page, not JSON"),
    (half_json(), ResponseInvalid, "cut short, not JSON"),
    (empty_data(), ResponseInvalid, "0 vectors for 2 inputs"),
    (cut_after_headers(), TransportClosed, "broke before the end of the reply"),
]


@pytest.mark.parametrize("open_lane", [openai_lane, ollama_lane])
@pytest.mark.parametrize(("broken", "kind", "words"), CASES)
async def test_each_is_its_own_failure_and_the_lane_goes_on(
    open_lane: type,
    broken: Behaviour,
    kind: type[ProviderError],
    words: str,
    autojump_clock: object,
) -> None:
    async with open_scripted_engine(rules=[Rule(nth(1, 2), broken)]) as engine, open_lane(engine) as lane:
        with pytest.raises(ProviderError, match=words) as caught:
            await embed(lane, ["one", "two"])
        assert type(caught.value) is kind
        assert (await embed(lane, ["one", "two"])).shape == (2, 8)
        assert engine.log.requests == 3
