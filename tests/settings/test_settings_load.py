from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as run_with
from hypothesis import strategies as st

from embedkit.errors import SettingsError, UsageError
from embedkit.settings import Settings, load_settings
from embedkit.settings.load import FILE_NAME
from embedkit.settings.structure import settings_from

BOX = '[providers.box]\nkind = "openai-compatible"\nbase_url = "http://127.0.0.1:8080/v1"\nmodel = "m"\n'
TENANT = '[[tenants]]\nname = "t"\n'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    here = tmp_path / "project"
    here.mkdir()
    monkeypatch.chdir(here)
    return here


def refused(folder: Path, text: str | bytes) -> SettingsError:
    content = text.encode() if isinstance(text, str) else text
    (folder / FILE_NAME).write_bytes(content)
    with pytest.raises(SettingsError) as caught:
        load_settings()
    assert len(str(caught.value).splitlines()) == 1
    assert str(caught.value).startswith(FILE_NAME)
    return caught.value


def loaded(folder: Path, text: str) -> Settings:
    (folder / FILE_NAME).write_text(text)
    return load_settings()


def test_without_a_file_the_defaults_hold(folder: Path) -> None:
    settings = load_settings()
    assert settings.file is None
    assert settings.provider().kind == "local"
    assert settings.store.path == folder / ".embedkit/knowledge.sqlite3"


def test_a_file_in_a_parent_is_found_and_paths_are_relative_to_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "a/b").mkdir(parents=True)
    repositories = '[{name = "r", path = "../api"}, {name = "g", git = "x.git"}]'
    text = f'version = 1\n{TENANT}repositories = {repositories}\n[ask]\nlog = "debug.jsonl"\n'
    (folder / FILE_NAME).write_text(text)
    monkeypatch.chdir(folder / "a/b")
    settings = load_settings()
    assert settings.file == folder / FILE_NAME
    assert settings.store.path == folder / ".embedkit/knowledge.sqlite3"
    first, second = settings.tenants[0].repositories
    assert first.path == folder.parent / "api"
    assert second.git == str(folder / "x.git")
    assert settings.ask.log == folder / "debug.jsonl"
    assert settings.origins is not None
    assert settings.origins["ask.log"] == os.path.join("..", "..", "embedkit.toml:6")


@pytest.mark.parametrize(
    "url", ["https://h/x.git", "git@h:x.git", "ssh://git@h/x.git", "file:///x.git", "https://[::1]/x.git"]
)
def test_a_git_url_is_no_path(folder: Path, url: str) -> None:
    text = f'version = 1\n[[tenants]]\nname = "t"\nrepositories = [{{name = "r", git = "{url}"}}]\n'
    assert loaded(folder, text).tenants[0].repositories[0].git == url


def test_a_byte_order_mark_and_windows_line_ends_are_no_matter(folder: Path) -> None:
    text = "\ufeffversion = 1\n[sweep]\nconcurrency = 2\n".replace("\n", "\r\n")
    (folder / FILE_NAME).write_bytes(text.encode())
    assert load_settings().sweep.concurrency == 2


@pytest.mark.parametrize(
    ("text", "line", "key", "says"),
    [
        ("", 1, "version", "missing; write for example version = 1"),
        ("version = 2", 1, "version", "2 (a whole number) is not a version"),
        ("version = true", 1, "version", "true (a boolean) is not"),
        ('version = 1\n[sweep]\nslice = "12"', 3, "sweep.slice", '"12" (a string) is not a finite number of seconds'),
        ("version = 1\n[sweep]\nslice = true", 3, "sweep.slice", "true (a boolean) is not"),
        ("version = 1\n[sweep]\nslice = nan", 3, "sweep.slice", "nan (a number) is not"),
        ("version = 1\n[sweep]\nslice = -inf", 3, "sweep.slice", "-inf (a number) is not"),
        (f"version = 1\n[sweep]\nslice = 1{'0' * 400}", 3, "sweep.slice", "inf (a number) is not"),
        ("version = 1\nsweep.concurrency = 4.0", 2, "sweep.concurrency", "4.0 (a number) is not a whole number"),
        ("version = 1\nsweep.concurrency = 0", 2, "sweep.concurrency", "0 (a whole number) is not"),
        ("version = 1\nsweep = 3", 2, "sweep", "3 (a whole number) is not a table"),
        ("version = 1\n[tenants]", 2, "tenants", "{} (a table) is not an array of tables"),
        ("version = 1\n[probe]\nshare = 1.5", 3, "probe.share", "1.5 (a number) is not a number from 0 to 1"),
        ("version = 1\n[swep]\nslice = 1", 2, "swep", "unknown key (= {slice}); the nearest known key is sweep"),
        ("version = 1\nfile = 'x'", 2, "file", "unknown key"),
        ("version = 1\nprovider_defaults.timeout = 1", 2, "provider_defaults", "unknown key"),
        (
            f"version = 1\n{BOX}capacty = 4",
            6,
            "providers.box.capacty",
            "unknown key (= 4); the nearest known key is providers.box.capacity",
        ),
        *(
            (
                f"version = 1\n{BOX}{key} = 1",
                6,
                f"providers.box.{key}",
                f'{key} is no longer a key: people go first until they are "lead" seconds ahead; write lead = 30.0',
            )
            for key in ("max_overtakes", "max_age")
        ),
        ("version = 1\n[sweep]\nmax_age = 1", 3, "sweep.max_age", "unknown key (= 1)"),
        (f"version = 1\n{BOX}batch_share = 0", 6, "providers.box.batch_share", "is not a finite number over 0"),
        ("version = 1\nslice = 1", 2, "slice", "the nearest known key is sweep.slice"),
        ("version = 1\n[providers.defaults]\nkind = 'local'", 3, "providers.defaults.kind", "unknown key"),
        ("version = 1\n[providers.a]\nbase_url = 'http://x'", 2, "providers.a.kind", "missing; write for example"),
        (
            'version = 1\n[providers."a b"]\nkind = "olama"',
            3,
            'providers."a b".kind',
            '"olama" (a string) is not one of',
        ),
        (
            "version = 1\n[providers.a]\nkind = ['local']",
            3,
            "providers.a.kind",
            "[1 elements] (an array) is not one of",
        ),
        ("version = 1\n[providers.a]\nkind = 'ollama'", 2, "providers.a.model", 'missing; kind "ollama" needs it'),
        (
            "version = 1\n[providers.a]\nkind = 'codex'\nbase_url = 'http://x'",
            4,
            "providers.a.base_url",
            'kind "codex" is not spoken to over HTTP',
        ),
        (f"version = 1\n{BOX}over_cap = 'stop'", 6, "providers.box.over_cap", '"clamp", "give-up"'),
        ("version = 1\n\n[embedding]\nprovider = 'nope'", 4, "embedding.provider", "use one of: local"),
        (
            "version = 1\n[providers.c]\nkind = 'codex'\n[embedding]\nprovider = 'c'",
            5,
            "embedding.provider",
            "cannot embed",
        ),
        (
            f"version = 1\n{TENANT}repositories = [\n {{name = 'r', path = 'x'}},\n {{name = 'r', git = 'y'}}]",
            6,
            "tenants[0].repositories[1].name",
            '"r" is there twice',
        ),
        ("version = 1\n[[tenants]]\nname = 't'\n[[tenants]]\nname = 't'", 5, "tenants[1].name", "is there twice"),
        (
            "version = 1\n[[tenants]]\nname = 't'\n[[tenants.repositories]]\nname = 'r'",
            4,
            "tenants[0].repositories[0].path",
            "needs either path or git",
        ),
        (
            "version = 1\n[[tenants]]\nname = 't'\nrepositories = [\n5]",
            5,
            "tenants[0].repositories[0]",
            "5 (a whole number) is not a table",
        ),
        (
            "version = 1\n[[tenants]]\nname = 't'\nrepositories = [{name = 'r', path = 'x', branch = 'b'}]",
            4,
            "tenants[0].repositories[0].branch",
            "has no use beside path",
        ),
        (
            "version = 1\n[[tenants]]\nname = 't'\nrepositories = [{name = 'r', git = 'ext::sh -c true'}]",
            4,
            "tenants[0].repositories[0].git",
            "is not a git URL",
        ),
        ("version = 1\n[ask]\npanel = [{provider = 'local'}]", 3, "ask.panel[0].provider", "cannot answer questions"),
        ("version = 1\n[consensus]\narbiter = 'x'", 3, "consensus.arbiter", '"x" is no provider'),
        (
            "version = 1\n[providers.o]\nkind = 'openrouter'\n[ask]\npanel = [{provider = 'o'}]",
            5,
            "ask.panel[0].model",
            "missing",
        ),
    ],
)
def test_what_is_refused_is_named_with_its_line(folder: Path, text: str, line: int, key: str, says: str) -> None:
    error = refused(folder, text)
    assert (error.file, error.line, error.key) == (FILE_NAME, line, key)
    assert str(error).startswith(f"{FILE_NAME}:{line}: {key}: ")
    assert says in error.message
    assert isinstance(error, UsageError)


def test_the_first_of_several_errors_is_told_and_the_others_are_counted(folder: Path) -> None:
    error = refused(
        folder, "version = 1\n[sweep]\nslice = 'x'\nconcurency = 1\n[probe]\nshare = 7\n[embedding]\nbatch = 0"
    )
    assert error.line == 3
    assert error.message.endswith("(and 3 more errors)")
    assert refused(folder, "version = 1\na = 1\nb = 1").message.endswith("(and 1 more error)")


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("version = 1\na = \n", 2, "not TOML at column 5"),
        ("version = 1\na = 1\na = 2", 3, "Cannot overwrite a value"),
        ("version = 1\na = '''x\n", 3, "not TOML"),
        (f"version = 1\na = {'[' * 5000}", None, "nest too deeply"),
        (f"version = 1{'0' * 5000}", None, "not TOML"),
        (b"version = 1\n# \xff", 2, "byte 0xff is not UTF-8"),
    ],
)
def test_what_is_not_toml_is_refused_with_its_place(
    folder: Path, text: str | bytes, line: int | None, says: str
) -> None:
    error = refused(folder, text)
    assert error.line == line
    assert says in str(error)


def test_a_named_file_must_be_there_and_be_a_file(folder: Path) -> None:
    with pytest.raises(SettingsError, match=r"^nope\.toml: no such file; "):
        load_settings("nope.toml")
    with pytest.raises(SettingsError, match="a folder, not a file"):
        load_settings(folder)
    with pytest.raises(SettingsError, match="cannot be read"):
        load_settings("a\0b")


def test_a_folder_of_the_files_name_is_not_taken_for_it(folder: Path) -> None:
    (folder / FILE_NAME).mkdir()
    assert load_settings().file is None


def test_a_current_folder_that_is_gone_is_one_clear_line(folder: Path) -> None:
    folder.rmdir()
    with pytest.raises(SettingsError, match="the current folder is gone"):
        load_settings()


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
_KEYS = st.sampled_from(
    ["providers", "models", "embedding", "tenants", "repositories", "ask", "panel", "timeout", "name"]
)


@run_with(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(_KEYS, st.dictionaries(_KEYS, _VALUES, max_size=3) | st.lists(_VALUES, max_size=2) | _VALUES))
def test_no_document_brings_out_anything_but_settings_or_faults(document: dict[str, object]) -> None:
    found = settings_from({"version": 1, **document})
    if isinstance(found, list):
        assert found
        for fault in found:
            assert re.fullmatch(r"[^\n\r\x00-\x1f]+", fault.message)
