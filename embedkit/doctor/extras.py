"""Extras of the package: installed or not, and whether the settings need one that is not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import trio

from embedkit.doctor.finding import Finding, Subject
from embedkit.settings import Settings

EXTRAS: Final[Mapping[str, tuple[str, ...]]] = {
    "local": ("wordllama", "tokenizers", "safetensors"),
    "git": ("dulwich",),
    "watch": ("watchfiles",),
    "mcp": ("mcp", "hypercorn"),
    "gateway": ("prometheus-client",),
}
"""What each extra of the package installs, by its names on the package index."""


async def check_extras(subject: Subject) -> Sequence[Finding]:
    """Which extras are installed, in which versions.

    Cancellation:
        Nothing was changed.
    """
    return await trio.to_thread.run_sync(_findings, subject.settings)


def _findings(settings: Settings) -> list[Finding]:
    needs = dict(_needs(settings))
    found = []
    for extra, packages in EXTRAS.items():
        versions = {package: _version(package) for package in packages}
        missing = [package for package, version in versions.items() if version is None]
        if not missing:
            listed = ", ".join(f"{package} {version}" for package, version in versions.items())
            found.append(Finding("extra", "ok", f"{extra}: {listed}"))
            continue
        fix = f'pip install "trio-embedkit[{extra}]"'
        if extra in needs:
            found.append(Finding("extra", "error", f"{extra}: {', '.join(missing)} missing, {needs[extra]}; {fix}"))
        else:
            found.append(Finding("extra", "note", f"{extra}: not installed; {fix}"))
    return found


def _needs(settings: Settings) -> Iterator[tuple[str, str]]:
    """Extras that the settings cannot do without, each with the reason."""
    if settings.provider().kind == "local":
        yield "local", f"which provider {settings.embedding.provider} embeds with"
    for tenant in settings.tenants:
        for repository in tenant.repositories:
            if repository.git is not None:
                yield "git", f"which {tenant.name}/{repository.name} is read with"


def _version(package: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return None
