"""How a settings class declares its keys, and how a key that is refused says so."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import attrs

from embedkit.errors import SettingsError
from embedkit.settings.redaction import kind_of
from embedkit.settings.rules import Rule

KeyPath = tuple[str | int, ...]
Many = Literal["one", "array", "table"]

_BARE = re.compile(r"[A-Za-z0-9_-]+|<[a-z]+>")


def written(path: KeyPath) -> str:
    """A key path as a person writes it: ``tenants[2].repositories[0].path``, ``models."a:b".timeout``."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            name = part if _BARE.fullmatch(part) else json.dumps(part, ensure_ascii=False)
            text += f".{name}" if text else name
    return text


@attrs.frozen
class Fault:
    """One thing that is wrong: where, below what was being made, and a message that ends with the mend."""

    at: KeyPath
    message: str


class KeyRefused(SettingsError):
    """Settings made in code are at fault. Carries every fault, so that a loader can place each in its file."""

    def __init__(self, section: str, faults: Sequence[Fault]) -> None:
        self.faults = tuple(faults)
        first = self.faults[0]
        super().__init__(first.message, key=section + written(first.at))


@attrs.frozen(eq=False)
class Leaf:
    """A key that holds a value.

    Attributes:
        rule: What it accepts.
        meaning: One line for the reference and the schema.
        default: The default in words, where it is not a constant.
        required: Whether the file must have it.
    """

    rule: Rule
    meaning: str
    default: str | None = None
    required: bool = False


@attrs.frozen(eq=False)
class Branch:
    """A key that holds a table (``one``), an array of tables or a table of named tables, each made into ``of``."""

    of: type[attrs.AttrsInstance]
    many: Many = "one"


def told_of(attribute: attrs.Attribute[Any]) -> Leaf | Branch | None:
    """What a settings class declared for ``attribute``; ``None`` for what is no key of the file."""
    told: Leaf | Branch | None = attribute.metadata.get("key")
    return told


def keys_of(cls: type[attrs.AttrsInstance]) -> Iterator[tuple[attrs.Attribute[Any], Leaf | Branch]]:
    """The keys of a settings class, in the order in which it declares them."""
    for attribute in attrs.fields(cls):
        if (told := told_of(attribute)) is not None:
            yield attribute, told


def key(
    rule: Rule,
    default: Any,
    meaning: str,
    *,
    in_words: str | None = None,
    show: Callable[[Any], str] | None = None,
) -> Any:
    """A field for a key that may be left out.

    Args:
        rule: What it accepts.
        default: A value or an ``attrs.Factory``.
        meaning: One line for the reference and the schema.
        in_words: The default, where it is not a constant.
        show: Its ``repr``, where the value may hold a credential.
    """
    return attrs.field(
        default=default,
        converter=rule.convert,
        validator=checked,
        repr=True if show is None else show,
        metadata={"key": Leaf(rule, meaning, in_words)},
    )


def as_tuple(items: Iterable[Any]) -> tuple[Any, ...]:
    """An array as a tuple; whatever is no array as it came, for the validator to refuse."""
    return tuple(items) if isinstance(items, list | tuple) else items  # type: ignore[return-value]


def required(rule: Rule, meaning: str) -> dict[str, Leaf]:
    """Metadata for a key that must be there. The class calls ``attrs.field`` itself, so that mypy sees no default."""
    return {"key": Leaf(rule, meaning, required=True)}


def tables(of: type[attrs.AttrsInstance], many: Many = "one") -> dict[str, Branch]:
    """Metadata for a key that holds tables."""
    return {"key": Branch(of, many)}


def section_of(cls: type) -> str:
    """Where the keys of a settings class stand in the file: ``providers.<name>.``."""
    return str(getattr(cls, "section", ""))


def checked(instance: Any, attribute: attrs.Attribute[Any], value: object) -> None:
    """Validator of every leaf: its rule decides.

    Raises:
        KeyRefused: Names the key's path, the value and the mend.
    """
    leaf = told_of(attribute)
    assert isinstance(leaf, Leaf)
    if (refusal := leaf.rule.refusal(attribute.name, value)) is not None:
        raise KeyRefused(section_of(type(instance)), [Fault((attribute.name,), refusal)])


def instances(instance: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
    """Validator of every branch: whatever is in it is an instance of the class that it declares.

    Raises:
        KeyRefused: Names the key's path, what was found and which class to use.
    """
    branch = told_of(attribute)
    assert isinstance(branch, Branch)
    at: KeyPath = (attribute.name,)
    items: list[tuple[KeyPath, object]] = [(at, value)]
    if branch.many == "array" and isinstance(value, tuple):
        items = [((*at, index), item) for index, item in enumerate(value)]
    elif branch.many == "table" and isinstance(value, Mapping):
        items = [((*at, name), item) for name, item in value.items()]
    faults = [
        Fault(at, f"{kind_of(item)} is not settings; use {branch.of.__name__}(...)")
        for at, item in items
        if not isinstance(item, branch.of)
    ]
    if faults:
        raise KeyRefused(section_of(type(instance)), faults)


def refuse(instance: object, checks: Callable[[], Iterator[Fault]]) -> None:
    """Run a class's own checks across its keys.

    Raises:
        KeyRefused: With every fault they found.
    """
    if faults := list(checks()):
        raise KeyRefused(section_of(type(instance)), faults)
