"""What a single key accepts: one rule each, from which validation, messages, schema and reference are all made."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from os import PathLike, fspath
from pathlib import Path as FilePath
from typing import Any
from urllib.parse import urlsplit

import attrs

from embedkit.settings.redaction import kind_of, shown

_LONGEST_HOST = 253
_LABEL = re.compile(r"[A-Za-z0-9_-]{1,63}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_UNSAFE_GIT = re.compile(r"-|[A-Za-z0-9+.-]+::")
# What keys of well-known services begin with: whoever pastes one where a variable's name belongs must not see it again.
_LOOKS_LIKE_A_KEY = re.compile(r"(sk|gsk|hf|xai|ghp|glpat|github_pat)[-_]|AIza")


def _same(value: Any) -> Any:
    return value


def _nothing_more(value: object) -> str | None:
    return None


@attrs.frozen(kw_only=True, eq=False)
class Rule:
    """What a key accepts.

    Attributes:
        expects: In words: ``"four" is not <expects>``.
        example: A value that is accepted, as TOML writes it.
        accepts: Whether a converted value is one.
        schema: The same as JSON schema.
        convert: Brings a value into its Python type; returns what it does not know as it came.
        explain: A better reason than ``is not <expects>``, where there is one; it may not quote a credential.
        secret: The value never stands in a message.
    """

    expects: str
    example: str
    accepts: Callable[[Any], bool]
    schema: Mapping[str, object]
    convert: Callable[[Any], Any] = _same
    explain: Callable[[object], str | None] = _nothing_more
    secret: bool = False

    def refusal(self, name: str, value: object) -> str | None:
        """Why ``value`` is refused for the key ``name``, with the mend; ``None`` where it is accepted."""
        if self.accepts(value):
            return None
        mend = f"write for example {name} = {self.example}"
        if (reason := self.explain(value)) is not None:
            return f"{reason}; {mend}"
        what = "the value (not shown here)" if self.secret else f"{shown(value)} ({kind_of(value)})"
        return f"{what} is not {self.expects}; {mend}"


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, float) and math.isfinite(value)


def seconds(value: Any) -> Any:
    """A whole number as a float; whatever else as it came. A boolean is no number."""
    if not _is_whole(value):
        return value
    try:
        return float(value)
    except OverflowError:
        return math.inf


def is_limit(value: object) -> bool:
    """Whether ``value`` can bound an attempt: a positive finite number."""
    return _is_number(seconds(value)) and seconds(value) > 0


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip()) and value.isprintable()


def _to_path(value: Any) -> Any:
    return FilePath(fspath(value)) if isinstance(value, PathLike) or _is_text(value) else value


def one_of(*choices: str) -> Rule:
    """One of a few words."""
    listed = ", ".join(f'"{choice}"' for choice in choices)
    return Rule(
        expects=f"one of {listed}",
        example=f'"{choices[0]}"',
        accepts=lambda value: isinstance(value, str) and value in choices,
        schema={"enum": list(choices)},
    )


def optional(rule: Rule) -> Rule:
    """``rule`` for a key that may also be left out: ``None`` in Python, absent in the file."""
    return attrs.evolve(rule, accepts=lambda value: value is None or rule.accepts(value))


VERSION = Rule(
    expects="a version that this embedkit reads",
    example="1",
    accepts=lambda value: _is_whole(value) and value == 1,
    schema={"const": 1},
)
COUNT = Rule(
    expects="a whole number over 0",
    example="4",
    accepts=lambda value: _is_whole(value) and value > 0,
    schema={"type": "integer", "minimum": 1},
)
CHUNK_TOKENS = Rule(
    expects="a whole number from 64 to 32768",
    example="512",
    accepts=lambda value: _is_whole(value) and 64 <= value <= 32_768,
    schema={"type": "integer", "minimum": 64, "maximum": 32_768},
)
COUNT_OR_ZERO = Rule(
    expects="a whole number, 0 or more",
    example="1",
    accepts=lambda value: _is_whole(value) and value >= 0,
    schema={"type": "integer", "minimum": 0},
)
DURATION = Rule(
    expects="a finite number of seconds over 0",
    example="30.0",
    accepts=lambda value: _is_number(value) and value > 0,
    schema={"type": "number", "exclusiveMinimum": 0},
    convert=seconds,
)
DURATION_OR_ZERO = Rule(
    expects="a finite number of seconds, 0 or more",
    example="30.0",
    accepts=lambda value: _is_number(value) and value >= 0,
    schema={"type": "number", "minimum": 0},
    convert=seconds,
)
POSITIVE = Rule(
    expects="a finite number over 0",
    example="1.0",
    accepts=lambda value: _is_number(value) and value > 0,
    schema={"type": "number", "exclusiveMinimum": 0},
    convert=seconds,
)
SHARE = Rule(
    expects="a number from 0 to 1",
    example="0.25",
    accepts=lambda value: _is_number(value) and 0 <= value <= 1,
    schema={"type": "number", "minimum": 0, "maximum": 1},
    convert=seconds,
)
# Nothing is refused here: a rung that is no limit is dropped with a warning and the next rung serves (see ladder.py).
RUNG = attrs.evolve(DURATION, accepts=lambda value: True)
FLAG = Rule(
    expects="true or false",
    example="true",
    accepts=lambda value: isinstance(value, bool),
    schema={"type": "boolean"},
)
TEXT = Rule(
    expects="a string in one line that is not blank",
    example='"name"',
    accepts=_is_text,
    schema={"type": "string", "pattern": r"\S"},
)


def _to_patterns(value: Any) -> Any:
    return tuple(value) if isinstance(value, list | tuple) else value


PATTERNS = Rule(
    expects="an array of patterns, each as in a .gitignore",
    example='["*.gen.go", "!dist/"]',
    accepts=lambda value: isinstance(value, tuple) and all(map(_is_text, value)),
    schema={"type": "array", "items": {"type": "string", "pattern": r"\S"}},
    convert=_to_patterns,
)
PATH = Rule(
    expects="a path",
    example='"../folder"',
    accepts=lambda value: isinstance(value, FilePath),
    schema={"type": "string", "pattern": r"\S"},
    convert=_to_path,
)
KEEP_ALIVE = Rule(
    expects='a number of seconds or a duration such as "5m"',
    example='"5m"',
    accepts=lambda value: _is_number(value) or _is_text(value),
    schema={"type": ["number", "string"], "pattern": r"\S"},
    convert=seconds,
)


def _variable_fault(value: object) -> str | None:
    if isinstance(value, str) and not _names_a_variable(value):
        return (
            "the value (not shown here) is no name of an environment variable; the key itself never stands here, "
            "only the name of the variable that holds it"
        )
    return None


def _names_a_variable(value: object) -> bool:
    return isinstance(value, str) and _VARIABLE.fullmatch(value) is not None and _LOOKS_LIKE_A_KEY.match(value) is None


VARIABLE = Rule(
    expects="the name of an environment variable",
    example='"BOX_KEY"',
    accepts=_names_a_variable,
    schema={"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]{0,63}$"},
    explain=_variable_fault,
    secret=True,
)


def _shown_address(value: str) -> str:
    """``value`` as it may be shown: without a scheme nobody can say where in it the password ends."""
    return shown(value) if "://" in value else "the address (not shown here)"


def _base_url_fault(value: object) -> str | None:
    if not isinstance(value, str):
        return None
    try:
        parts = urlsplit(value)
        host, _port = parts.hostname, parts.port
    except ValueError:
        return f"{_shown_address(value)} is not a URL"
    if parts.username is not None or parts.password is not None or "@" in value:
        return f"{_shown_address(value)} holds credentials; put the key into a variable, name that in api_key_env"
    if parts.query or parts.fragment or "?" in value or "#" in value:
        return (
            f"{_shown_address(value)} has a query or fragment; a key belongs into the variable that api_key_env names"
        )
    if parts.scheme not in ("http", "https") or not host:
        return f"{shown(value)} is not a URL that begins with http:// or https:// and a host"
    if not _is_text(value) or " " in value:
        return f"{shown(value)} holds a blank"
    if not _can_be_host(host):
        return f"{shown(value)} names no host that can be: labels of 1 to 63 letters, digits and hyphens between dots"
    return None


def _can_be_host(host: str) -> bool:
    """Whether a resolver can be asked for ``host``: what cannot raises in the middle of a connection."""
    if ":" in host:
        return True  # an address of IPv6, which urlsplit has checked
    try:
        labels = host.encode("idna").decode("ascii").removesuffix(".").split(".")
        for label in labels:
            if label.lower() == "xn--":
                return False
            if label.lower().startswith("xn--"):
                label[4:].encode("ascii").decode("punycode").encode("idna")
    except UnicodeError:
        return False
    return len(host) <= _LONGEST_HOST and all(_LABEL.fullmatch(label) for label in labels)


BASE_URL = Rule(
    expects="a URL that begins with http:// or https://",
    example='"http://127.0.0.1:8080/v1"',
    accepts=lambda value: isinstance(value, str) and _base_url_fault(value) is None,
    schema={"type": "string", "pattern": r"^[Hh][Tt][Tt][Pp][Ss]?://[^/?#@\s]+[^?#@\s]*$"},
    convert=lambda value: value.rstrip("/") if isinstance(value, str) else value,
    explain=_base_url_fault,
)


def _is_git(value: object) -> bool:
    # `-x` would be read as an option and `ext::` as a program to run by a git command line.
    return _is_text(value) and _UNSAFE_GIT.match(str(value)) is None


GIT = Rule(
    expects="a git URL or the path of a git repository",
    example='"https://example.org/site.git"',
    accepts=_is_git,
    schema={"type": "string", "pattern": r"^(?!-)(?![A-Za-z0-9+.-]+::).*\S"},
    convert=lambda value: fspath(value) if isinstance(value, PathLike) else value,
)
