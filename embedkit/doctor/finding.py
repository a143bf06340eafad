"""What a check looks at, and what it finds. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Literal

import attrs

from embedkit.settings import Settings

State = Literal["ok", "note", "warning", "error"]


@attrs.frozen
class Subject:
    """What is examined.

    Attributes:
        settings: What is in force; defaults where the file cannot be read.
        environ: The whole environment. Values of it are shown nowhere.
    """

    settings: Settings
    environ: Mapping[str, str] = attrs.field(repr=False)


@attrs.frozen
class Finding:
    """One thing that was looked at.

    Attributes:
        check: Which check found it, in a word.
        state: ``ok``; ``note``: nothing needs it now; ``warning``: it works, though not as written; ``error``: what the
            settings ask for cannot work.
        message: One line that names the thing; for an error, how to fix it too.
    """

    check: str
    state: State
    message: str

    def as_json(self) -> dict[str, str]:
        """Every attribute."""
        return attrs.asdict(self)


@attrs.frozen
class Examination:
    """All findings, in the order of the checks."""

    findings: tuple[Finding, ...]

    @property
    def is_well(self) -> bool:
        """Whether nothing is an error."""
        return all(finding.state != "error" for finding in self.findings)

    def count(self, state: State) -> int:
        """How many findings are of ``state``."""
        return Counter(finding.state for finding in self.findings)[state]

    def as_json(self) -> dict[str, Any]:
        """``{"ok", "errors", "warnings", "findings"}``."""
        return {
            "ok": self.is_well,
            "errors": self.count("error"),
            "warnings": self.count("warning"),
            "findings": [finding.as_json() for finding in self.findings],
        }
