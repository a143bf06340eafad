"""Answers, tables and rounds for people. What a terminal would obey instead of showing is taken out."""

from __future__ import annotations

from collections.abc import Sequence

from embedkit.ask import Answer, Consensus, Failure, Panel, Replies, Result, Round
from embedkit.ask.analysis import Analysis


def result_text(result: Result) -> str:
    """A block for one result: its head, then the answer."""
    who = result.alias if result.model in (None, result.alias) else f"{result.alias} ({result.model})"
    if isinstance(result, Answer):
        return f"== {_line(who)}, {result.elapsed:.2f} s\n{_harmless(result.text.strip())}\n\n"
    return f"== {_line(who)}: {result.kind}\n{_line(result.message)}\n\n"


def replies_table(replies: Replies) -> str:
    """A line for each member, in panel order, and one for those who were left out."""
    rows = [("member", "result", "seconds", "attempts")]
    rows += [
        (
            _line(result.alias),
            "answer" if isinstance(result, Answer) else result.kind,
            f"{result.elapsed:.2f}",
            str(result.attempts),
        )
        for result in replies.results
    ]
    omitted = f"omitted (ask.max_fanout): {', '.join(map(_line, replies.omitted))}\n" if replies.omitted else ""
    return table(rows) + omitted


def panel_text(view: Panel) -> str:
    """Who would be asked, and who not."""
    lines = [f"{_line(member.alias)}: asked" for member in view.asked]
    lines += [f"{_line(alias)}: omitted (ask.max_fanout)" for alias in view.omitted]
    lines += [f"{_line(alias)}: unavailable ({_line(reason)})" for alias, reason in view.unavailable.items()]
    return "\n".join(lines) + "\n"


def round_text(one: Round) -> str:
    """A line for a round, and one for each issue that was accepted in it."""
    kinds = {result.alias: result.kind for result in one.replies if isinstance(result, Failure)}
    words = {alias: _word(verdict, kinds.get(alias)) for alias, verdict in one.verdicts.items()}
    said = ", ".join(f"{_line(alias)} {word}" for alias, word in words.items())
    arbiter = _word(one.blind, kinds.get(one.replies[0].alias))
    if one.adjudication is not None and one.arbiter != one.blind:
        arbiter += f", then {_word(one.arbiter, getattr(one.adjudication, 'kind', None))}"
    accepted = [f"  accepted: {_line(issue)}" for issue in one.accepted]
    return "\n".join([f"round {one.number}: {said}; arbiter {arbiter}", *accepted]) + "\n"


def consensus_text(found: Consensus) -> str:
    """How it ended."""
    lines = [f"dropped: {_line(alias)} ({kind})" for alias, kind in found.dropped.items()]
    lines += [f"unavailable: {_line(alias)} ({_line(reason)})" for alias, reason in found.unavailable.items()]
    end = found.status if found.confidence is None else f"{found.status}, confidence {found.confidence}"
    return "\n".join([*lines, f"consensus: {end}, after {found.elapsed:.2f} s"]) + "\n"


def analysis_text(analysis: Analysis) -> str:
    """A line for each model."""
    rows = [("model", "calls", "errors", "p50", "p95", "kinds")]
    for row in analysis.rows:
        kinds = ", ".join(f"{kind} {count}" for kind, count in row.failures.items()) or "-"
        name = _line(f"{row.provider}/{row.model}")
        rows.append((name, str(row.calls), f"{row.error_rate:.0%}", f"{row.p50:.2f} s", f"{row.p95:.2f} s", kinds))
    skipped = f"skipped: {analysis.skipped} broken lines\n" if analysis.skipped else ""
    return table(rows) + skipped


def table(rows: Sequence[Sequence[str]]) -> str:
    """Columns, as wide as their widest cell."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)
    return "\n".join(lines) + "\n"


def _word(verdict: str, kind: str | None) -> str:
    return verdict if kind is None else f"{verdict} ({kind})"


def _line(text: str) -> str:
    return "".join(sign if sign.isprintable() else " " for sign in text)


def _harmless(text: str) -> str:
    return "\n".join(_line(line.expandtabs(4)) for line in text.splitlines())
