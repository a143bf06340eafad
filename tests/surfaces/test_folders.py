from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from embedkit.errors import UsageError
from embedkit.surfaces.folders import Known, folders_of, tenant_of


def names(*paths: Path) -> list[str]:
    return [repository.name for repository in tenant_of(folders_of(paths)).repositories]


def made(root: Path, *places: str) -> list[Path]:
    found = [root / place for place in places]
    for path in found:
        path.mkdir(parents=True)
    return found


def test_a_repository_is_named_after_its_folder_and_the_later_of_two_after_its_parent_too(tmp_path: Path) -> None:
    paths = made(tmp_path, "a/api", "b/api", "x/b/api", "c/site")
    assert names(*paths) == ["api", "b/api", "x/b/api", "site"]
    assert names(*paths[::-1]) == ["site", "api", "b/api", "a/api"]


def test_a_repository_is_named_as_it_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``current``, a link to one release and then to the next, is one repository: each release piled up."""
    (api,) = made(tmp_path, "api")
    (tmp_path / "current").symlink_to("api")
    monkeypatch.chdir(api)
    for path, name in ((Path(), "api"), (Path("../api/."), "api"), (tmp_path / "current", "current")):
        (repository,) = tenant_of(folders_of([path])).repositories
        assert (repository.name, repository.path) == (name, tmp_path / name)


def test_the_parent_of_a_link_is_where_the_link_leads(tmp_path: Path) -> None:
    inner, _ = made(tmp_path, "a/b/inner", "other")
    (tmp_path / "other" / "link").symlink_to(inner)
    assert folders_of([tmp_path / "other" / "link" / ".."]) == [tmp_path / "a" / "b"]


def known(name: str, root: Path | None, **files: str) -> Known:
    hashes = {path.replace("_", "."): hashlib.sha256(text.encode()).hexdigest() for path, text in files.items()}
    return Known(name, None if root is None else str(root), lambda: hashes)


def test_another_folder_of_the_same_name_does_not_replace_the_first(tmp_path: Path) -> None:
    """codebase-memory-mcp#1578: ``sync a/docs``, then ``sync b/docs``: the second replaced the first."""
    first, second = made(tmp_path, "a/docs", "b/docs")
    held = [known("docs", first)]
    assert [item.name for item in tenant_of([second], held).repositories] == ["b/docs"]
    assert [item.name for item in tenant_of([second, first], held).repositories] == ["b/docs", "docs"]
    assert [item.name for item in tenant_of([second], [*held, known("b/docs", second)]).repositories] == ["b/docs"]
    assert [item.name for item in tenant_of([second], [known("docs", None)]).repositories] == ["docs"]


def test_a_folder_that_was_moved_is_taken_along_when_its_content_says_so(tmp_path: Path) -> None:
    (moved,) = made(tmp_path, "new/docs")
    for name in ("a", "b"):
        (moved / f"{name}.txt").write_text(name)
    gone = tmp_path / "old" / "docs"
    same, other = known("docs", gone, a_txt="a", b_txt="b", c_txt="c"), known("docs", gone, a_txt="x", b_txt="y")
    assert [item.name for item in tenant_of([moved], [same]).repositories] == ["docs"]
    assert [item.name for item in tenant_of([moved], [other]).repositories] == ["new/docs"]
    assert [item.name for item in tenant_of([moved], [known("docs", gone)]).repositories] == ["new/docs"]


def test_a_name_that_is_given_is_refused_only_where_it_belongs_to_a_folder_that_is_there(tmp_path: Path) -> None:
    first, second = made(tmp_path, "a/docs", "b/docs")
    assert [item.name for item in tenant_of([second], [known("docs", first)], name="mine").repositories] == ["mine"]
    assert [item.name for item in tenant_of([first], [known("docs", first)], name="docs").repositories] == ["docs"]
    assert [item.name for item in tenant_of([first], [known("x", tmp_path / "no")], name="x").repositories] == ["x"]
    with pytest.raises(UsageError, match=r"docs is the name of .*a/docs; give another --name, or remove"):
        tenant_of([second], [known("docs", first)], name="docs")


def test_one_folder_by_two_paths_is_named_twice(tmp_path: Path) -> None:
    (api,) = made(tmp_path, "api")
    (tmp_path / "link").symlink_to("api")
    with pytest.raises(UsageError, match="named twice"):
        folders_of([api, tmp_path / "link"])


def test_the_root_of_all_folders_has_a_name() -> None:
    assert names(Path("/")) == ["/"]


def test_names_are_printable_and_differ_where_the_folders_do(tmp_path: Path) -> None:
    paths = made(tmp_path, "a\nb", r"a\nb", "bad\udcff")
    assert names(*paths) == [r"a\nb", r"a\\nb", r"bad\xff"]
