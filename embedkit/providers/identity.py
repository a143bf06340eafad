"""Whether an engine serves the model that the settings name: asked before a lane's first call. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import attrs

from embedkit.errors import UsageError

_SHOWN = 5


@attrs.frozen
class Identity:
    """What preflight found.

    Attributes:
        verdict: ``listed``: the engine says that it has the model. ``unknown``: it could not say; work
            proceeds.
        model: The model that was asked about.
        detail: Why it is unknown, in one line; empty when listed.
    """

    verdict: Literal["listed", "unknown"]
    model: str
    detail: str = ""


def models_of(document: object) -> list[str] | None:
    """The models a reply lists: ``data[].id`` and aliases, or ``models[].name``; ``None`` if it is no list."""
    if not isinstance(document, dict):
        return None
    listed = document.get("data", document.get("models"))
    if not isinstance(listed, list):
        return None
    return [name for item in listed if isinstance(item, dict) for name in _names(item)]


def identify(model: str, listed: Sequence[str] | None, *, peer: str, empty_is_refusal: bool) -> Identity:
    """The verdict on ``model``, given what an engine lists.

    Args:
        model: As configured; without a tag it matches ``:latest``.
        listed: ``None`` where the engine gave no list.
        peer: ``host:port``, for messages.
        empty_is_refusal: Whether an empty list means that the engine has no model, rather than that it keeps
            no list.

    Raises:
        UsageError: the engine lists other models only.
    """
    if listed is None:
        return Identity("unknown", model, f"engine {peer} gives no list of its models")
    if not listed and not empty_is_refusal:
        return Identity("unknown", model, f"engine {peer} lists no model")
    if _tagged(model) in {_tagged(name) for name in listed}:
        return Identity("listed", model)
    names = sorted(set(listed))
    shown = ", ".join(repr(name[:80]) for name in names[:_SHOWN]) or "none"
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    raise UsageError(
        f"engine {peer} does not have the model {model!r}; it has {shown}{more}: load it or change `model`"
    )


def _tagged(name: str) -> str:
    # The tag stands after the last slash: `host:5000/name` has none.
    name = name.removeprefix("models/")  # Gemini's way of writing it
    return name if ":" in name.rpartition("/")[2] else f"{name}:latest"


def _names(item: dict[object, object]) -> Iterator[str]:
    for key in ("id", "name", "model"):
        value = item.get(key)
        if isinstance(value, str):
            yield value
    aliases = item.get("aliases")
    if isinstance(aliases, list):
        yield from (alias for alias in aliases if isinstance(alias, str))
