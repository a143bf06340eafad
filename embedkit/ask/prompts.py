"""What the members of a consensus are asked, in words. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_VERDICT = "End with one line that is `VERDICT: APPROVE`, `VERDICT: REVISE` or `VERDICT: REJECT`."


def review(proposal: str) -> str:
    """For the peers, and for the arbiter's blind verdict."""
    return (
        "Review the following. Write each problem that must not stay on a line of its own, as `CRITICAL: ...`. "
        f"{_VERDICT}\n\n{proposal}"
    )


def adjudicate(proposal: str, own: str, reviews: Mapping[str, str]) -> str:
    """For the arbiter, once it has given its own verdict.

    Args:
        proposal: What is judged.
        own: The arbiter's review, given without having seen the others.
        reviews: The peers', by alias.
    """
    return (
        "You reviewed a proposal. Below are the proposal, your review, and those of others. For each "
        "CRITICAL issue, yours too, decide whether it is right, and write it on a line of its own, as `ACCEPTED: ...` "
        f"or `REFUSED: ...`. Then give your verdict again. {_VERDICT}\n\n"
        f"# Proposal\n\n{proposal}\n\n# Your review\n\n{own}\n\n{_all_of(reviews)}"
    )


def revise(proposal: str, accepted: Sequence[str], reviews: Mapping[str, str]) -> str:
    """For the arbiter, when a round did not converge: its answer is the next round's proposal."""
    issues = "\n".join(f"- {issue}" for issue in accepted) or "- none; see the reviews"
    return (
        "Revise the proposal below so that its reviewers can approve it. Answer with the whole of the revised proposal "
        f"and nothing else.\n\n# Proposal\n\n{proposal}\n\n# Accepted issues\n\n{issues}\n\n{_all_of(reviews)}"
    )


def _all_of(reviews: Mapping[str, str]) -> str:
    return "\n\n".join(f"# Review of {alias}\n\n{text}" for alias, text in reviews.items())
