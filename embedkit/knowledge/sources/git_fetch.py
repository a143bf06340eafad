"""Fetching a repository's head into a bare one, through dulwich, and what may be said of a failure.

Plain blocking code, which runs in this process for ``file://`` and in a helper (``git_helper``) for servers.

An address may hold a password or token. It appears in no message: a message of dulwich's is searched for it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit, urlunsplit

import attrs

from embedkit.knowledge.sources.source import printable_path

if TYPE_CHECKING:
    from dulwich.config import StackedConfig
    from dulwich.objects import ObjectID
    from dulwich.refs import Ref
    from dulwich.repo import Repo

SILENT_SECONDS: Final = 60.0
"""How long a git server may say nothing."""

_HEADS = (b"refs/heads/", b"refs/tags/", b"refs/remotes/origin/")
# Not the cache's fault, though a file of it was in hand: descriptors, memory or room are short.
_SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.EDQUOT})

Activity = Callable[[int, str], None]


@attrs.define
class Refs:
    """What a repository calls its commits.

    Attributes:
        names: Those that were asked for.
        others: Whether it has any at all.
    """

    names: dict[Ref, ObjectID] = attrs.field(factory=dict)
    others: bool = False


def redacted(address: str) -> str:
    """An address without user, password, query and fragment, fit to be shown."""
    if "://" not in address:
        return printable_path(address)
    parts = urlsplit(address)
    host = parts.netloc.rpartition("@")[2]
    return printable_path(urlunsplit((parts.scheme, host, parts.path, "", "")))


def without_secrets(address: str, text: str) -> str:
    """``text`` in one line, with nothing of the address's user, password or query in it."""
    text = " ".join(text.replace(address, redacted(address)).split())
    if "://" not in address:
        return text
    parts = urlsplit(address)
    userinfo, _, _ = parts.netloc.rpartition("@")
    user, _, password = userinfo.partition(":")
    secrets = [userinfo, password, parts.query]
    if parts.scheme in ("http", "https"):
        secrets.append(user)  # a token may stand in the user's place
    for secret in secrets:
        for form in {secret, unquote(secret)} - {""}:
            text = text.replace(form, "***")
    return text


def reason_of(address: str, error: BaseException) -> str:
    """What ``error`` says, fit to be shown."""
    return without_secrets(address, str(error) or type(error).__name__)


def wanted_names(branch: str | None) -> list[Ref]:
    """Full names under which a branch or tag may be found, the likeliest first."""
    from dulwich.refs import Ref

    if branch is None:
        return [Ref(b"HEAD")]
    name = os.fsencode(branch)
    return [Ref(name)] if name.startswith(b"refs/") else [Ref(head + name) for head in _HEADS]


def fetch(address: str, wanted: Sequence[Ref], repository: Repo, activity: Activity | None = None) -> Refs:
    """Bring the first of ``wanted`` that is there into ``repository``, without its history.

    Args:
        address: Of the repository that has it.
        wanted: Names, the likeliest first.
        repository: Where it goes.
        activity: Told of each piece that comes or goes.

    Raises:
        Exception: Whatever dulwich, the network or the file system raises.
    """
    from dulwich.client import get_transport_and_path

    client, path = get_transport_and_path(address, config=_settings(), report_activity=activity)
    found = Refs()

    def wants(refs: Mapping[Ref, ObjectID], depth: int | None = None) -> list[ObjectID]:
        found.others = bool(refs)
        for name in wanted:
            there = refs.get(name)
            if there is not None:
                found.names[name] = there
                return [] if there in repository.object_store else [there]
        return []

    client.fetch(path, repository, determine_wants=wants, depth=1)
    return found


def bare(folder: Path) -> Repo:
    """The bare repository at ``folder``, made if there is none."""
    from dulwich.errors import NotGitRepository
    from dulwich.repo import Repo

    if not (folder / "HEAD").exists():
        folder.mkdir(parents=True, exist_ok=True)
        return Repo.init_bare(str(folder))
    try:
        return Repo(str(folder))
    except NotGitRepository:
        raise FileNotFoundError(errno.ENOENT, "no git repository any more", str(folder)) from None


def is_far(error: BaseException) -> bool:
    """Whether a failure is the other side's, the way's or the system's: a new cache would not help."""
    from dulwich.client import HTTPProxyUnauthorized, HTTPUnauthorized, InvalidWants
    from dulwich.errors import GitProtocolError, NotGitRepository
    from urllib3.exceptions import HTTPError

    if isinstance(error, OSError):
        return error.filename is None or error.errno in _SHORTAGES  # a socket has no name, a file of the cache has
    answers = (GitProtocolError, NotGitRepository, HTTPError, HTTPUnauthorized, HTTPProxyUnauthorized, InvalidWants)
    return isinstance(error, (*answers, MemoryError))


def _settings() -> StackedConfig:
    """The user's git settings, with a timeout where they set none."""
    from dulwich.config import ConfigFile, StackedConfig

    ours = ConfigFile()
    ours.set((b"http",), b"timeout", b"%d" % SILENT_SECONDS)
    return StackedConfig([*StackedConfig.default_backends(), ours])
