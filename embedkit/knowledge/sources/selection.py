"""Which paths of a repository are looked at: what is left out everywhere, what settings add or take back, and secrets.

Three lists in the form of ignore files, read from the strongest to the weakest: ``exclude`` of the settings and the
command line (``!`` takes back, even what an ignore file names), then the repository's own ignore files, then
``DEFAULT_IGNORES``. Where ``include`` has patterns, only what they name is looked at. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Final

import attrs

from embedkit.knowledge.sources.ignore import Ignored, Rules

DEFAULT_IGNORES: Final = (
    # dependencies and environments
    *("node_modules/", "bower_components/", "jspm_packages/", ".pnpm-store/", ".yarn/", ".venv/", "venv/", ".eggs/"),
    *("*.egg-info/", ".bundle/", ".gradle/", ".m2/", ".cargo/", ".terraform/", ".dart_tool/"),
    # caches and what tools leave behind
    *("__pycache__/", "*.pyc", ".tox/", ".nox/", ".mypy_cache/", ".pytest_cache/", ".ruff_cache/", ".hypothesis/"),
    *(".ipynb_checkpoints/", ".cache/", ".parcel-cache/", ".turbo/", ".nyc_output/", "htmlcov/", ".coverage"),
    # what is built from sources that are indexed
    *("dist/", ".next/", ".nuxt/", ".svelte-kit/", ".output/", ".angular/"),
    # other programs' own
    *(".svn/", ".hg/", ".bzr/", "CVS/", ".idea/", ".vs/", ".DS_Store", "Thumbs.db", "desktop.ini", "*.swp", "*~"),
)  # fmt: skip
"""Patterns that hold in every repository. ``exclude = ["!dist/"]`` takes one back; an ignore file can do so too."""

SECRETS: Final = (
    *(".env", ".env.*", "*.env", "!.env.example", "!.env.sample", "!.env.template", "!.env.dist", "!example.env"),
    *("id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "id_ecdsa_sk", "id_ed25519_sk", "*.ppk", "*.pem", "*.key"),
    *("*.p12", "*.pfx", "*.jks", "*.keystore", "*.kdbx", "*.agekey", "*.ovpn", "secring.*"),
    *(".netrc", "_netrc", ".pgpass", ".my.cnf", ".npmrc", ".pypirc", ".git-credentials", ".htpasswd", ".vault-token"),
    *("**/.aws/credentials", "**/.docker/config.json", ".dockercfg", "**/.kube/config", "**/.gem/credentials"),
    *("terraform.tfstate", "terraform.tfstate.backup", "*.tfvars", "!example.tfvars"),
)
"""Names of files that hold passwords and keys: counted as ``secret``, never read, never sent to an engine."""


def _patterns(lines: Sequence[str]) -> Rules:
    return Rules(["\n".join(lines).encode("utf-8", "surrogateescape")])


@attrs.frozen(eq=False, slots=False)
class Selection:
    """What settings and command line say about the files of one repository.

    Attributes:
        include: Patterns; without any, everything is looked at.
        exclude: Patterns that overrule the ignore files; ``!`` takes back, a secret's name too.
        max_file_bytes: Larger files are left out.
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    max_file_bytes: int = 1_048_576

    @cached_property
    def _included(self) -> Rules | None:
        return _patterns(self.include) if self.include else None

    @cached_property
    def _excluded(self) -> Rules:
        return _patterns(self.exclude)

    @cached_property
    def _secret(self) -> Rules:
        return _patterns(SECRETS)

    def rules(self) -> Ignored:
        """What holds at the root, before any ignore file is read."""
        return Ignored(((0, _patterns(DEFAULT_IGNORES)),))

    def covers(self, path: str, rules: Ignored) -> bool:
        """Whether ``path`` (a folder's ends in ``/``) is not to be looked at, nor anything in it."""
        verdict = self._excluded.verdict(path)
        return rules.covers(path) if verdict is None else verdict

    def names(self, path: str, *, above: bool) -> bool:
        """Whether ``include`` names ``path``, or named a folder ``above`` it."""
        if above or self._included is None:
            return True
        return self._included.verdict(path) is True

    def is_secret(self, path: str) -> bool:
        """Whether the name of the file at ``path`` says that it holds a secret."""
        return self._excluded.verdict(path) is not False and self._secret.verdict(path) is True
