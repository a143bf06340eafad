"""Which encoding a file is in."""

from __future__ import annotations

import pytest

from embedkit.knowledge.sources import encodings
from embedkit.knowledge.sources.encodings import encoding_of


def test_nothing_is_guessed_of_utf_8(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look at 10,000 files spent half of its time on guesses that nobody asked for."""

    def never(data: bytes) -> list[str]:
        raise AssertionError(data)

    monkeypatch.setattr(encodings, "_guesses", never)
    assert encoding_of(b"plain\n" * 1000) == "utf-8"
    assert encoding_of("Grüße, 漢字\n".encode()) == "utf-8"
    with pytest.raises(AssertionError):
        encoding_of("Привет\n".encode("cp1251"))


def test_a_text_with_a_nul_is_in_no_encoding() -> None:
    assert encoding_of(b"a\0b") is None
