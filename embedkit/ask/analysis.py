"""``debug.jsonl`` read back: calls, errors by kind and times for each model. Pure.

A line that is no whole entry is skipped and counted: the last one of a process that was killed, or somebody's edit.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import attrs

from embedkit.ask.kinds import KINDS

_LONGEST_LINE = 1 << 16


@attrs.frozen(kw_only=True)
class ModelRow:
    """The attempts of one model.

    Attributes:
        provider: In the settings.
        model: Which.
        calls: Attempts.
        failures: Those that failed, by kind.
        p50: Seconds that half of the attempts took at most.
        p95: Seconds that 95 of 100 took at most.
        verdicts: Of a consensus, by verdict.
    """

    provider: str
    model: str
    calls: int
    failures: dict[str, int]
    p50: float
    p95: float
    verdicts: dict[str, int]

    @property
    def error_rate(self) -> float:
        """Failures for each attempt."""
        return sum(self.failures.values()) / self.calls

    def as_json(self) -> dict[str, Any]:
        """Every attribute, and ``error_rate``."""
        return {**attrs.asdict(self), "error_rate": self.error_rate}


@attrs.frozen(kw_only=True)
class Analysis:
    """A log's rows, sorted by provider and model, and how many lines were skipped."""

    rows: tuple[ModelRow, ...]
    skipped: int

    def as_json(self) -> dict[str, Any]:
        """``{"models", "skipped"}``."""
        return {"models": [row.as_json() for row in self.rows], "skipped": self.skipped}


def analyse(lines: Iterable[str]) -> Analysis:
    """What the lines of a ``debug.jsonl`` say."""
    entries: dict[tuple[str, str], list[dict[str, Any]]] = {}
    skipped = 0
    for line in lines:
        if not line.strip():
            continue
        entry = _entry(line)
        if entry is None:
            skipped += 1
        else:
            entries.setdefault((entry["provider"], entry["model"] or ""), []).append(entry)
    rows = tuple(_row(provider, model, found) for (provider, model), found in sorted(entries.items()))
    return Analysis(rows=rows, skipped=skipped)


def _entry(line: str) -> dict[str, Any] | None:
    if len(line) > _LONGEST_LINE:
        return None
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(entry, dict) or entry.get("event") != "attempt":
        return None
    elapsed = entry.get("elapsed")
    is_whole = (
        isinstance(entry.get("provider"), str)
        and isinstance(entry.get("model"), str | None)
        and isinstance(elapsed, int | float)
        and math.isfinite(elapsed)
        and (entry.get("kind") is None or entry["kind"] in KINDS)
        and isinstance(entry.get("verdict"), str | None)
    )
    return entry if is_whole else None


def _row(provider: str, model: str, entries: Sequence[dict[str, Any]]) -> ModelRow:
    times = sorted(float(entry["elapsed"]) for entry in entries)
    return ModelRow(
        provider=provider,
        model=model,
        calls=len(entries),
        failures=dict(sorted(Counter(entry["kind"] for entry in entries if entry["kind"]).items())),
        p50=_percentile(times, 0.50),
        p95=_percentile(times, 0.95),
        verdicts=dict(sorted(Counter(entry["verdict"] for entry in entries if entry.get("verdict")).items())),
    )


def _percentile(ordered: Sequence[float], share: float) -> float:
    """By the nearest rank."""
    return ordered[max(math.ceil(share * len(ordered)) - 1, 0)]
