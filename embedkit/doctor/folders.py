"""Folders and files: the store's, the log's, the tenants', and certificates. Looked at, and nothing is made."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import trio

from embedkit.doctor.finding import Finding, Subject
from embedkit.settings import Settings


async def check_folders(subject: Subject) -> Sequence[Finding]:
    """Whether what is to be read can be, and what is to be written.

    Cancellation:
        Nothing was changed; a file system that does not answer keeps a thread.
    """
    return await trio.to_thread.run_sync(_findings, subject.settings, abandon_on_cancel=True)


def _findings(settings: Settings) -> list[Finding]:
    return [
        _written("store", settings.store.path, "the first sync makes it"),
        *([] if settings.ask.log is None else [_written("log", settings.ask.log, "the first answer makes it")]),
        *_tenants(settings),
        *_certificates(settings),
    ]


def _written(check: str, path: Path, maker: str) -> Finding:
    if path.is_dir():
        return Finding(check, "error", f"{path} is a folder; name a file")
    if path.exists():
        if not os.access(path, os.R_OK):
            return Finding(check, "error", f"{path} cannot be read; change its permissions, or name another")
        if not os.access(path, os.W_OK):
            return Finding(check, "warning", f"{path} cannot be written; it can only be read")
        return Finding(check, "ok", f"{path}, {path.stat().st_size:,} bytes")
    nearest = next(folder for folder in path.parents if folder.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        return Finding(check, "error", f"{path} cannot be made in {nearest}; change its permissions, or name another")
    return Finding(check, "note", f"{path} is not there; {maker}")


def _tenants(settings: Settings) -> Iterator[Finding]:
    for tenant in settings.tenants:
        for repository in tenant.repositories:
            name, path = f"{tenant.name}/{repository.name}", repository.path
            if path is None:
                continue
            if not path.is_dir():
                yield Finding("folder", "error", f"{name}: {path} is no folder; make it, or change its path")
            elif not os.access(path, os.R_OK | os.X_OK):
                yield Finding("folder", "error", f"{name}: {path} cannot be read; change its permissions")
            else:
                yield Finding("folder", "ok", f"{name}: {path}")


def _certificates(settings: Settings) -> Iterator[Finding]:
    for name, described in settings.providers.items():
        if described.ca_file is not None and not os.access(described.ca_file, os.R_OK):
            message = f"provider {name}: ca_file {described.ca_file} cannot be read; name a file that can"
            yield Finding("certificate", "error", message)
