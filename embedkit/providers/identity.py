"""Whether an engine serves the model that the settings name: asked before a lane's first call. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Literal

import attrs

from embedkit.errors import UsageError
from embedkit.providers.secrets import holds_secret

_SHOWN = 5
_NAME = re.compile(r"[\w@][\w.:/@+ -]{0,79}")


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


def identify(
    model: str,
    listed: Sequence[str] | None,
    *,
    peer: str,
    empty_is_refusal: bool,
    secrets: Sequence[str] = (),
) -> Identity:
    """The verdict on ``model``, given what an engine lists.

    Args:
        model: As configured; without a tag it matches ``:latest``.
        listed: ``None`` where the engine gave no list.
        peer: ``host:port``, for messages.
        empty_is_refusal: Whether an empty list means that the engine has no model, rather than that it keeps
            no list.
        secrets: What must not be shown, though a model were named so.

    Raises:
        UsageError: the engine lists other models only.
    """
    if listed is None:
        return Identity("unknown", model, f"engine {peer} gives no list of its models")
    if not listed and not empty_is_refusal:
        return Identity("unknown", model, f"engine {peer} lists no model")
    if _tagged(model) in {_tagged(name) for name in listed}:
        return Identity("listed", model)
    if any("*" in name for name in listed):
        # A gateway that passes on whatever is asked for (LiteLLM) names patterns, and not all that it serves.
        return Identity("unknown", model, f"engine {peer} lists patterns, and not every model by its name")
    names = sorted(set(listed))
    shown = ", ".join(shown_model(name, secrets) for name in names[:_SHOWN]) or "none"
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    raise UsageError(
        f"engine {peer} does not have the model {model!r}; it has {shown}{more}: load it or change `model`; "
        "if its list is not complete, set preflight = false"
    )


def shown_model(name: str, secrets: Sequence[str] = ()) -> str:
    """A model's name from the other side, as a message may have it."""
    if _NAME.fullmatch(name) is None or holds_secret(name, secrets):
        return "one whose name is not shown"
    return repr(name)


def mean_the_same(asked: str, said: str) -> bool:
    """Whether two names stand for one model.

    A provider's prefix (``openai/``), a maker's (``BAAI/``), a path, a file's ending, LM Studio's ``text-embedding-``,
    a tag ``:latest`` and case make no difference: gateways and engines add and drop them. A version does.
    """
    return _core(asked) == _core(said)


def _core(name: str) -> str:
    name = name.strip().lower().replace("\\", "/").rpartition("/")[2]
    name = name.removesuffix(".gguf").removesuffix(":latest")
    return name.removeprefix("text-embedding-") or name


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
