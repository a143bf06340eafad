from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedkit.ask.verdicts import Verdict, verdict_of

TABLE: list[tuple[str, Verdict | None]] = [
    # a VERDICT: line
    ("It is fine.\nVERDICT: APPROVE", "APPROVE"),
    ("verdict: approve", "APPROVE"),
    ("**VERDICT:** APPROVE", "APPROVE"),
    ("**VERDICT: APPROVE**\n\nWell done.", "APPROVE"),
    ("> VERDICT: `REJECT`", "REJECT"),
    ("Final verdict: REVISE", "REVISE"),
    ("VERDICT: REQUEST_CHANGES", "REVISE"),
    ("VERDICT: changes requested", "REVISE"),
    ("VERDICT: needs work", "REVISE"),
    ("VERDICT = approved", "APPROVE"),
    ("VERDICT: APPROVE - no critical issue", "APPROVE"),
    ("VERDICT: NOT APPROVED", "REJECT"),
    ("VERDICT: do not approve", "REJECT"),
    ("VERDICT: APPROVE if the tests pass", "REVISE"),
    ("VERDICT: APPROVE with minor changes", "REVISE"),
    ("VERDICT: APPROVE, once it is fixed", "REVISE"),
    ("VERDICT: REJECT\nlater\nVERDICT: APPROVE", "APPROVE"),
    ("VERDICT: APPROVE or REJECT\nI cannot say.", None),
    ("VERDICT: APPROVE or REJECT\nVERDICT: REJECT", "REJECT"),
    ("VERDICT: perhaps", None),
    # beside its token on one line
    ("My verdict is APPROVE.", "APPROVE"),
    ("So the verdict remains **REJECT**.", "REJECT"),
    ("Verdict \u2014 approve", "APPROVE"),
    ("The verdict would be an APPROVE", "APPROVE"),
    ("APPROVE is my verdict.", "APPROVE"),
    ("My verdict is not APPROVE", "REJECT"),
    ("My verdict depends on whether they approve it", None),
    ("verdict\nsomething else about approval", None),
    # a heading and a bare token
    ("## Verdict\n\nAPPROVE\n\nSome words.\nMore.", "APPROVE"),
    ("Words.\n\n**Conclusion**\nReject.\n\nMore words.", "REJECT"),
    ("Words.\nThe verdict:\nrevise\nMore words.", "REVISE"),
    ("# Review\nI approve of some of it.\nWords.", None),
    # bare at an end
    ("APPROVE\n\nThe change is right.", "APPROVE"),
    ("The change is wrong.\n\n**REJECT**", "REJECT"),
    ("  approve.  ", "APPROVE"),
    ("APPROVE\nwords\nREJECT", None),
    ("words\nAPPROVE\nwords", None),
    # fenced blocks do not count
    ("```\nVERDICT: APPROVE\n```\nI do not know.", None),
    ("~~~\nAPPROVE\n~~~", None),
    ("````\n```\nVERDICT: APPROVE\n````\nVERDICT: REJECT", "REJECT"),
    ("```text\nVERDICT: APPROVE", None),
    # nothing
    ("", None),
    ("I would approve this.", None),
    ("It was approved by others.", None),
    ("DISAPPROVE", None),
    ("VERDICT: DISAPPROVE", None),
]


@pytest.mark.parametrize(("reply", "verdict"), TABLE, ids=[reply[:40] for reply, _ in TABLE])
def test_a_reply_has_this_verdict(reply: str, verdict: Verdict | None) -> None:
    assert verdict_of(reply) == verdict


def test_a_reply_with_windows_line_ends() -> None:
    assert verdict_of("words\r\nVERDICT: APPROVE\r\nwords\r\n") == "APPROVE"


@given(st.text(alphabet="VERDICTverdict:APOapproe #*`~\n notif", max_size=300))
def test_anything_can_be_read(reply: str) -> None:
    assert verdict_of(reply) in ("APPROVE", "REVISE", "REJECT", None)


@pytest.mark.parametrize(
    "part", ["verdict ", "# ", "*" * 50 + "\n", "not ", "VERDICT:", "** ** ", "is my verdict ", "`"]
)
def test_a_long_reply_takes_time_in_proportion(part: str) -> None:
    began_at = time.perf_counter()
    verdict_of(part * (1_000_000 // len(part)))
    assert time.perf_counter() - began_at < 5
