"""From ``embedkit.toml`` to settings: find the file, read it, and say in one line what is wrong with it and where."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from embedkit.errors import SettingsError
from embedkit.settings.fields import Fault, KeyPath, written
from embedkit.settings.gateway_tables import GatewaySettings
from embedkit.settings.ladder import Warn, usable, warn_on_stderr
from embedkit.settings.model import Settings
from embedkit.settings.tables import ProviderSettings, RepositorySettings, TenantSettings

FILE_NAME = "embedkit.toml"

_POSITION = re.compile(r" \(at (?:line (?P<line>\d+), column (?P<column>\d+)|end of document)\)$")
# `https://...` and git's short `user@host:path`; what is neither is a path.
_REMOTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|[^/\\]+:(?!\\)")


def load_settings(path: str | os.PathLike[str] | None = None, *, warn: Warn = warn_on_stderr) -> Settings:
    """Read settings from a file.

    Args:
        path: The file; without one, ``embedkit.toml`` in the current folder or the nearest parent that has one, and
            if there is none, the defaults. Then the knowledge base is the one in ``.embedkit`` of the current folder or
            of the nearest parent that has one.
        warn: Told, in one line each, about timeouts that are no limits and were dropped.

    Returns:
        Settings with every relative path made absolute: relative to the file, or where there is no file to the
        current folder.

    Raises:
        SettingsError: The file cannot be read or says what cannot be. One line: file, line, key, value and the mend.
    """
    here = _current_folder()
    file = Path(path) if path is not None else _found_from(here)
    if file is None:
        return _anchored(Settings(origins={}), _nearest_store(here))
    label = os.path.relpath(file, here) if path is None else os.fspath(path)
    # What only a file needs is imported with the first file, so that `import embedkit` stays light.
    from embedkit.settings.structure import settings_from

    document, lines = _parse(_read(file, label), label)
    origins = {written(at): f"{label}:{line}" for at, line in lines.items()}
    _drop_bad_rungs(document, origins, warn)
    file = Path(os.path.abspath(here / file))
    settings = settings_from(document, file=file, origins=origins)
    if isinstance(settings, list):
        raise _first(settings, lines, label)
    return _anchored(settings, file.parent)


def _current_folder() -> Path:
    try:
        return Path.cwd()
    except OSError as error:
        message = "the current folder is gone; change into one that is there"
        raise SettingsError(message) from error


def _found_from(folder: Path) -> Path | None:
    for place in (folder, *folder.parents):
        # os.path.isfile says no where Path.is_file may raise, for example below a folder that may not be entered.
        if os.path.isfile(place / FILE_NAME):
            return place / FILE_NAME
    return None


def _nearest_store(folder: Path) -> Path:
    """The folder, or the nearest parent, that holds a knowledge base of the default name; else the folder."""
    default = Settings().store.path
    for place in (folder, *folder.parents):
        if os.path.isfile(place / default):
            return place
    return folder


def _read(file: Path, label: str) -> str:
    try:
        content = file.read_bytes()
    except FileNotFoundError as error:
        raise SettingsError("no such file; name one that is there", file=label) from error
    except IsADirectoryError as error:
        raise SettingsError(f"a folder, not a file; name the {FILE_NAME} in it", file=label) from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SettingsError(f"cannot be read ({reason}); name a file that can", file=label) from error
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        message = f"byte {content[error.start]:#04x} is not UTF-8; save the file as UTF-8"
        raise SettingsError(message, file=label, line=line) from error


def _parse(text: str, label: str) -> tuple[dict[str, Any], dict[KeyPath, int]]:
    """The document that ``text`` is, and the line of every key in it."""
    import tomllib

    from embedkit.settings.lines import key_lines

    try:
        return tomllib.loads(text), key_lines(text)
    except RecursionError as error:
        raise SettingsError("arrays or tables nest too deeply; write them flatter", file=label) from error
    except ValueError as error:
        told = " ".join(str(error).split())
        where = _POSITION.search(told)
        line = int(where["line"]) if where and where["line"] else text.count("\n") + 1 if where else None
        column = f" at column {where['column']}" if where and where["column"] else ""
        reason = told[: where.start()] if where else told
        raise SettingsError(f"not TOML{column}: {reason}; mend the syntax there", file=label, line=line) from error


def _drop_bad_rungs(document: dict[str, Any], origins: dict[str, str], warn: Warn) -> None:
    """Take out of ``document`` each timeout that is no limit, so that the ladder's next rung serves."""
    for section in ("providers", "models"):
        tables = document.get(section)
        for name, table in tables.items() if isinstance(tables, dict) else ():
            if isinstance(table, dict) and "timeout" in table:
                key = written((section, name, "timeout"))
                if usable(table["timeout"], f"{origins[key]}: {key}", warn) is None:
                    del table["timeout"]
                    origins[key] += " (dropped)"


def _first(faults: list[Fault], lines: Mapping[KeyPath, int], label: str) -> SettingsError:
    """The error for the first of ``faults`` by line, which says how many more there are."""
    placed = sorted(((_line(fault.at, lines), written(fault.at), fault) for fault in faults), key=lambda item: item[:2])
    line, key, fault = placed[0]
    more = len(placed) - 1
    rest = f" (and {more} more error{'s' if more > 1 else ''})" if more else ""
    return SettingsError(fault.message + rest, file=label, line=line, key=key)


def _line(at: KeyPath, lines: Mapping[KeyPath, int]) -> int:
    """The line of a key, or where it is missing of the nearest table around it."""
    while at and at not in lines:
        at = at[:-1]
    return lines.get(at, 1)


def _anchored(settings: Settings, folder: Path) -> Settings:
    """``settings`` with every relative path taken as relative to ``folder``."""
    ask = settings.ask
    return attrs.evolve(
        settings,
        store=attrs.evolve(settings.store, path=_absolute(settings.store.path, folder)),
        ask=attrs.evolve(ask, log=None if ask.log is None else _absolute(ask.log, folder)),
        providers={name: _anchored_provider(provider, folder) for name, provider in settings.providers.items()},
        tenants=tuple(_anchored_tenant(tenant, folder) for tenant in settings.tenants),
        gateway=_anchored_gateway(settings.gateway, folder),
    )


def _anchored_gateway(gateway: GatewaySettings, folder: Path) -> GatewaySettings:
    certificate, certificate_key = gateway.certificate, gateway.certificate_key
    return attrs.evolve(
        gateway,
        listen=tuple(
            place if place.path is None else attrs.evolve(place, path=_absolute(place.path, folder))
            for place in gateway.listen
        ),
        certificate=None if certificate is None else _absolute(certificate, folder),
        certificate_key=None if certificate_key is None else _absolute(certificate_key, folder),
    )


def _anchored_tenant(tenant: TenantSettings, folder: Path) -> TenantSettings:
    return attrs.evolve(
        tenant, repositories=tuple(_anchored_repository(repository, folder) for repository in tenant.repositories)
    )


def _anchored_provider(provider: ProviderSettings, folder: Path) -> ProviderSettings:
    return provider if provider.ca_file is None else attrs.evolve(provider, ca_file=_absolute(provider.ca_file, folder))


def _anchored_repository(repository: RepositorySettings, folder: Path) -> RepositorySettings:
    if repository.path is not None:
        return attrs.evolve(repository, path=_absolute(repository.path, folder))
    if repository.git is not None and _REMOTE.match(repository.git) is None:
        return attrs.evolve(repository, git=str(_absolute(Path(repository.git), folder)))
    return repository


def _absolute(path: Path, folder: Path) -> Path:
    return Path(os.path.abspath(folder / os.path.expanduser(path)))
