"""Which provider serves which model, and how the list of models reads in each dialect. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import attrs

from embedkit.errors import UsageError
from embedkit.gateway.paths import Dialect
from embedkit.gateway.refusals import Refusal
from embedkit.settings import Settings
from embedkit.settings.kinds import SERVED_KINDS

_LATEST = ":latest"
_SHOWN = 20


@attrs.frozen
class Served:
    """A provider that the gateway stands before.

    Attributes:
        provider: Its name in the settings.
        kind: Its kind.
        model: The model's id as the engine knows it.
        names: The names that clients may use for it; the engine's own is the first.
    """

    provider: str
    kind: str
    model: str
    names: tuple[str, ...]

    def own_name(self, asked: str) -> str | None:
        """What to call the model that a client calls ``asked``; ``None`` if the engine knows it by that name."""
        if _bare(asked) == _bare(self.model):
            return None
        return self.model


class Catalogue:
    """The models that can be asked for.

    Raises:
        UsageError: There is no provider that a gateway can stand before.
    """

    def __init__(self, settings: Settings) -> None:
        described = {name: one for name, one in settings.providers.items() if one.kind in SERVED_KINDS}
        if not described:
            kinds = " or ".join(f'"{kind}"' for kind in SERVED_KINDS)
            raise UsageError(f"no provider of kind {kinds} in the settings; a gateway needs one to stand before")
        self.served: Mapping[str, Served] = {
            name: Served(name, one.kind, one.model or name, _names(name, one.model or name, settings.gateway.models))
            for name, one in described.items()
        }
        self._by_name: dict[str, list[Served]] = {}
        for one in self.served.values():
            for name in one.names:
                self._by_name.setdefault(_bare(name), []).append(one)

    def find(self, model: str, dialect: Dialect) -> Served:
        """Who serves ``model``; of several the one whose own dialect it is asked in, then the first of the settings.

        Raises:
            Refusal: Nobody does; names those there are.
        """
        found = self._by_name.get(_bare(model), [])
        if not found:
            known = sorted({one.model for one in self.served.values()})
            listed = ", ".join(known[:_SHOWN]) + (", ..." if len(known) > _SHOWN else "")
            message = f"the model {model[:100]!a} is not served here; there is: {listed}"
            raise Refusal(404, "model_not_found", message)
        return min(found, key=lambda one: not _speaks(one.kind, dialect))

    def listed(self) -> Iterable[tuple[str, Served]]:
        """Every name that can be asked for, with who serves it; a name that two have is the first one's."""
        seen: set[str] = set()
        for one in self.served.values():
            for name in one.names:
                if _bare(name) not in seen:
                    seen.add(_bare(name))
                    yield name, one


def openai_model(name: str, served: Served, created: int) -> dict[str, object]:
    """A model in OpenAI's words."""
    return {"id": name, "object": "model", "created": created, "owned_by": served.provider}


def ollama_model(name: str, modified_at: str) -> dict[str, object]:
    """A model in Ollama's words, as far as the gateway knows it."""
    return {"name": name, "model": name, "modified_at": modified_at, "size": 0, "digest": "", "details": {}}


def _names(provider: str, model: str, further: Mapping[str, str]) -> tuple[str, ...]:
    more = [name for name, of in further.items() if of == provider]
    return tuple(dict.fromkeys((model, provider, *more)))


def _speaks(kind: str, dialect: Dialect) -> bool:
    return (kind == "ollama") == (dialect == "ollama")


def _bare(model: str) -> str:
    return model.removesuffix(_LATEST)


def names_of(served: Iterable[Served]) -> Sequence[str]:
    """The models in words, for the line that says what is served."""
    return [f"{one.model} ({one.provider})" for one in served]
