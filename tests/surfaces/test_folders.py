from __future__ import annotations

from pathlib import Path

import pytest

from embedkit.errors import UsageError
from embedkit.surfaces.folders import tenant_of


def names(*paths: Path) -> list[str]:
    return [repository.name for repository in tenant_of(paths).repositories]


def made(root: Path, *places: str) -> list[Path]:
    found = [root / place for place in places]
    for path in found:
        path.mkdir(parents=True)
    return found


def test_a_repository_is_named_after_its_folder_and_the_later_of_two_after_its_parent_too(tmp_path: Path) -> None:
    paths = made(tmp_path, "a/api", "b/api", "x/b/api", "c/site")
    assert names(*paths) == ["api", "b/api", "x/b/api", "site"]
    assert names(*paths[::-1]) == ["site", "api", "b/api", "a/api"]


def test_every_repository_has_a_path_that_is_real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (api,) = made(tmp_path, "api")
    (tmp_path / "link").symlink_to("api")
    monkeypatch.chdir(api)
    for path in (Path(), Path("../api/."), tmp_path / "link"):
        (repository,) = tenant_of([path]).repositories
        assert (repository.name, repository.path) == ("api", api.resolve())


def test_one_folder_by_two_paths_is_named_twice(tmp_path: Path) -> None:
    (api,) = made(tmp_path, "api")
    (tmp_path / "link").symlink_to("api")
    with pytest.raises(UsageError, match="named twice"):
        tenant_of([api, tmp_path / "link"])


def test_the_root_of_all_folders_has_a_name() -> None:
    assert names(Path("/")) == ["/"]


def test_names_are_printable_and_differ_where_the_folders_do(tmp_path: Path) -> None:
    paths = made(tmp_path, "a\nb", r"a\nb", "bad\udcff")
    assert names(*paths) == [r"a\nb", r"a\\nb", r"bad\xff"]
