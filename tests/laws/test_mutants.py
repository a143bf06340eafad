"""The mutant runner, on one mutant a law; all of them: ``python -m tests.laws.mutants``."""

from __future__ import annotations

import mutants
import pytest


def test_every_mutant_s_text_is_in_the_source_once() -> None:
    for mutant in mutants.MUTANTS:
        source = (mutants.ROOT / "embedkit" / mutant.file).read_text(encoding="utf-8")
        assert source.count(mutant.old) == 1, mutant.name


def test_every_law_has_three_mutants_at_least() -> None:
    for law in range(1, 8):
        assert sum(mutant.law == law for mutant in mutants.MUTANTS) >= 3


@pytest.mark.soak
def test_the_quick_mutants_are_killed(capsys: pytest.CaptureFixture[str]) -> None:
    assert mutants.main(["--quick"]) == 0
    assert "7 of 7 mutants killed" in capsys.readouterr().out
