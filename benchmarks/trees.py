"""Whole trees of source code, as package registries carry them: what chunks are measured on.

A tree is named by its registry, package and version, fetched once by that registry's own client (``pip``, ``npm``,
``apt-get``) into a cache outside the repository, and unpacked there. A tree that cannot be had is skipped by name. The
cache is ``~/.cache/embedkit-trees``, or what ``EMBEDKIT_TREES`` names.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import attrs

CACHE = Path(os.environ.get("EMBEDKIT_TREES", "~/.cache/embedkit-trees")).expanduser()
_SECONDS = 300
_MOST_BYTES = 256 * 1024  # larger files are data or generated
_DEBIAN_SOURCES = """\
Types: deb-src
URIs: http://deb.debian.org/debian
Suites: {suite}
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
"""


@attrs.frozen
class Tree:
    """One package.

    Attributes:
        name: What the figures call it.
        registry: ``pypi`` (a wheel), ``pypi-source``, ``npm``, ``debian`` (a package that carries sources) or
            ``debian-source``.
        package: Its name there; with the version, where the registry keeps old ones.
        suffixes: Which of its files count.
        under: Only paths that contain this.
    """

    name: str
    registry: Literal["pypi", "pypi-source", "npm", "debian", "debian-source"]
    package: str
    suffixes: tuple[str, ...]
    under: str = ""

    @property
    def folder(self) -> Path:
        """Where it is unpacked."""
        return CACHE / f"{self.registry}-{self.package.replace('/', '-')}"

    def fetch(self) -> str:
        """Have it unpacked in ``folder``; why it cannot be, or ``""``."""
        if self.folder.is_dir():
            return ""
        making = self.folder.with_suffix(".part")
        shutil.rmtree(making, ignore_errors=True)
        (making / "packed").mkdir(parents=True)
        try:
            _download(self.registry, self.package, making / "packed")
            for packed in sorted((making / "packed").iterdir()):
                _unpack(packed, making / "tree")
        except (OSError, subprocess.SubprocessError, tarfile.TarError, zipfile.BadZipFile) as error:
            shutil.rmtree(making, ignore_errors=True)
            return f"{self.registry} {self.package}: {type(error).__name__}"
        (making / "tree").rename(self.folder)
        shutil.rmtree(making)
        return ""

    def texts(self) -> Iterator[tuple[str, str]]:
        """Path and text of each file that counts, in order of their paths."""
        for path in sorted(self.folder.rglob("*")):
            name = path.relative_to(self.folder).as_posix()
            if path.suffix not in self.suffixes or self.under not in name or path.is_symlink() or not path.is_file():
                continue
            if path.stat().st_size <= _MOST_BYTES:
                try:
                    yield name, path.read_text("utf-8")
                except UnicodeDecodeError:
                    continue


TREES = (
    Tree("Python", "pypi", "django==5.1.4", (".py",), "django/"),
    Tree("Go", "debian", "golang-github-gin-gonic-gin-dev", (".go",)),
    Tree("C", "debian-source", "redis", (".c",), "/src/"),
    Tree("GNU C", "debian", "gnulib", (".c",), "gnulib/lib/"),
    Tree("JavaScript", "npm", "three@0.160.0", (".js",), "/src/"),
    Tree("TypeScript", "npm", "rxjs@7.8.1", (".ts",), "/src/"),
    Tree("Java", "debian-source", "libcommons-lang3-java", (".java",), "/main/"),
    Tree("Rust", "debian", "librust-regex-dev", (".rs",)),
    Tree("C#", "pypi-source", "pythonnet==3.0.5", (".cs",)),
    Tree("Ruby", "debian", "ruby-activerecord", (".rb",)),
    Tree("PHP", "debian", "php-twig", (".php",)),
    Tree("Kotlin", "npm", "react-native@0.76.0", (".kt",)),
)


def _download(registry: str, package: str, into: Path) -> None:
    if registry == "npm":
        _run(["npm", "pack", "--silent", package], into)
    elif registry.startswith("pypi"):
        form = ["--only-binary", ":all:"] if registry == "pypi" else ["--no-binary", ":all:"]
        _run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", *form, package], into)
    elif registry == "debian":
        _run(["apt-get", "-q", "download", package], into)
    else:
        _run(["apt-get", *_source_lists(), "-q", "source", "--download-only", package], into)


def _source_lists() -> list[str]:
    """Options that give apt-get Debian's lists of sources, kept in the cache: the system's own stay as they are."""
    place = CACHE / "apt"
    options = [
        *("-o", "Dir::Etc::SourceList=/dev/null"),
        *("-o", f"Dir::Etc::SourceParts={place / 'sources'}"),
        *("-o", f"Dir::State::Lists={place / 'lists'}"),
    ]
    if not (place / "lists").is_dir():
        (place / "sources").mkdir(parents=True, exist_ok=True)
        (place / "lists" / "partial").mkdir(parents=True)
        words = dict(
            line.split("=", 1) for line in Path("/etc/os-release").read_text("utf-8").splitlines() if "=" in line
        )
        suite = words.get("VERSION_CODENAME", "stable").strip('"')
        (place / "sources" / "debian.sources").write_text(_DEBIAN_SOURCES.format(suite=suite), "utf-8")
        _run(["apt-get", *options, "-q", "update"], place)
    return options


def _run(command: list[str], folder: Path) -> None:
    subprocess.run(command, cwd=folder, capture_output=True, check=True, timeout=_SECONDS)


def _unpack(packed: Path, target: Path) -> None:
    target.mkdir(exist_ok=True)
    if packed.suffix == ".deb":
        _run(["dpkg-deb", "-x", str(packed), str(target)], target)
    elif packed.suffix in (".whl", ".zip"):
        with zipfile.ZipFile(packed) as archive:
            archive.extractall(target)
    elif (".tar." in packed.name or packed.suffix == ".tgz") and ".debian.tar" not in packed.name:
        with tarfile.open(packed) as archive:
            archive.extractall(target, filter="data")
