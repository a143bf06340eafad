from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedkit.ask.floor import announces, is_answer

LONG = "I will say what I think of it: " + "the lane is right and so is the order. " * 4


@pytest.mark.parametrize(
    "text",
    [
        "I will look at the file.",
        "i'll start with the tests",
        "I\u2019ll begin",
        "I am going to read it",
        "I'm going to read it",
        "LET ME check the code first.",
        "First, I need to see the repository.",
        "first I read it",
        "  \n**I will** begin",
        "> Let me see",
    ],
)
def test_an_announcement_is_no_answer(text: str) -> None:
    assert announces(text.strip())
    assert not is_answer(text, "intent")
    assert not is_answer(text, "length")
    assert is_answer(text, "off")


@pytest.mark.parametrize(
    "text", ["ok", "APPROVE", "I approve.", "I", "First option", "Letter A", "I willingly approve", "Illinois", "42"]
)
def test_a_short_answer_passes_unless_its_length_counts(text: str) -> None:
    assert is_answer(text, "intent")
    assert not is_answer(text, "length")
    assert is_answer(text, "length", shortest=0)


@pytest.mark.parametrize("floor", ["length", "intent", "off"])
def test_blank_is_never_an_answer_and_length_always_is(floor: str) -> None:
    assert not is_answer(" \n\t\u00a0", floor, 0)  # type: ignore[arg-type]
    assert is_answer(LONG, floor)  # type: ignore[arg-type]


@given(st.text(max_size=200))
def test_blanks_around_a_text_decide_nothing(text: str) -> None:
    assert is_answer(text, "intent") == is_answer(f"\n {text} \n", "intent")
