from __future__ import annotations

from pathlib import Path

import pytest

from embedkit.errors import SettingsError
from embedkit.settings import (
    AskSettings,
    Limit,
    ProviderSettings,
    RepositorySettings,
    Settings,
    load_settings,
    redacted_url,
)

SECRET = "hunter2hunter2"
BOX = ProviderSettings(kind="openai-compatible", base_url="http://h/v1", model="m", api_key_env="BOX_KEY")
PLAIN = ProviderSettings(kind="ollama", model="m")
SETTINGS = Settings(providers={"box": BOX, "plain": PLAIN, "cli": ProviderSettings(kind="gemini-cli")})


def test_the_key_is_read_from_the_variable_that_is_named() -> None:
    assert SETTINGS.api_key("box", {"BOX_KEY": f" {SECRET}\n"}) == SECRET
    assert SETTINGS.api_key("plain", {"BOX_KEY": SECRET}) is None
    assert SETTINGS.api_key(None, {}) is None


@pytest.mark.parametrize("environ", [{}, {"BOX_KEY": ""}, {"BOX_KEY": " \t\n"}])
def test_a_key_that_is_unset_or_blank_is_refused_at_use(environ: dict[str, str]) -> None:
    with pytest.raises(SettingsError, match='variable "BOX_KEY" is not set') as caught:
        SETTINGS.api_key("box", environ)
    assert caught.value.key == "providers.box.api_key_env"


def test_an_unset_key_says_the_line_of_its_name(tmp_path: Path) -> None:
    file = tmp_path / "embedkit.toml"
    file.write_text('version = 1\n[providers.o]\nkind = "ollama"\nmodel = "m"\napi_key_env = "O_KEY"\n')
    with pytest.raises(SettingsError) as caught:
        load_settings(file).api_key("o", {})
    assert (caught.value.file, caught.value.line) == (str(file), 5)


def test_a_key_with_a_line_break_is_refused_and_not_shown() -> None:
    with pytest.raises(SettingsError) as caught:
        SETTINGS.api_key("box", {"BOX_KEY": f"{SECRET}\r\nx"})
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "lines",
    [
        f'base_url = "http://user:{SECRET}@h/v1"\nmodel = "m"',
        f'base_url = "http://{SECRET}@h/v1"\nmodel = "m"',
        f'base_url = "http://h/v1?key={SECRET}"\nmodel = "m"',
        f'base_url = "http://u:a/{SECRET}@h/v1"\nmodel = "m"',
        f'base_url = "http://[u:{SECRET}@h/v1"\nmodel = "m"',
        f'base_url = "http://u:{SECRET}@h:port/v1"\nmodel = "m"',
        f'base_url = "user:{SECRET}@h/v1"\nmodel = "m"',
        f'base_url = "h/v1?key={SECRET}"\nmodel = "m"',
        f'base_url = "http:/u:{SECRET}@h"\nmodel = "m"',
        f'base_url = "u:a?{SECRET}@h/v1"\nmodel = "m"',
        f'base_url = "http://h/v1"\nmodel = "m"\napi_key_env = "sk-{SECRET}"',
        f'base_url = "http://h/v1"\nmodel = "m"\napi_key_env = "sk_{SECRET}"',
        f'base_url = "http://h/v1"\nmodel = "m"\napi_key = "{SECRET}"',
        f'base_url = "http://h/v1"\nmodel = "m"\ntoken = "{SECRET}"',
        f'base_url = "http://h/v1"\nmodel = "m"\nurl = "http://user:{SECRET}@h/"',
        f'base_url = "http://h/v1"\nmodel = "m"\napi_key_env = ["{SECRET}"]',
    ],
)
def test_no_error_shows_a_credential(tmp_path: Path, lines: str) -> None:
    file = tmp_path / "embedkit.toml"
    file.write_text(f'version = 1\n[providers.box]\nkind = "openai-compatible"\n{lines}\n')
    with pytest.raises(SettingsError) as caught:
        load_settings(file)
    error: BaseException | None = caught.value
    while error is not None:
        assert SECRET not in repr(error)
        error = error.__cause__


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (f"https://u:{SECRET}@h/x.git", "https://***@h/x.git"),
        (f"https://{SECRET}@h/x.git?a={SECRET}", "https://***@h/x.git?***"),
        (f"https://u:a/{SECRET}@h/x.git", "https://***@h/x.git"),
        (f"https://u:{SECRET}@x@h/x.git", "https://***@h/x.git"),
        ("https://h/@scope/x", "https://h/@scope/x"),
        ("git@h:x.git", "git@h:x.git"),
        ("../x", "../x"),
    ],
)
def test_a_url_is_shown_without_what_is_secret_in_it(url: str, shown: str) -> None:
    assert redacted_url(url) == shown
    assert SECRET not in repr(RepositorySettings(name="r", git=url))


def test_variables_of_the_environment_come_before_the_file_and_blank_ones_change_nothing() -> None:
    ask = Settings(ask=AskSettings(min_answer_chars=50, upload_timeout=9), providers=SETTINGS.providers)
    assert ask.min_answer_chars_for("cli", {"GEMINI_MIN_ANSWER_CHARS": "0"}) == 0
    assert ask.min_answer_chars_for("cli", {"GEMINI_MIN_ANSWER_CHARS": " "}) == 50
    assert ask.min_answer_chars_for("box", {"GEMINI_MIN_ANSWER_CHARS": "0"}) == 50
    assert ask.upload_timeout({"GROK_UPLOAD_TIMEOUT_MS": "1500"}) == Limit(1.5, "GROK_UPLOAD_TIMEOUT_MS")
    assert ask.upload_timeout({"GROK_UPLOAD_TIMEOUT_MS": "0"}) is None
    assert ask.upload_timeout({"GROK_UPLOAD_TIMEOUT_MS": ""}) == Limit(9.0, "ask.upload_timeout")
    with pytest.raises(SettingsError, match=r'^GROK_UPLOAD_TIMEOUT_MS: "1\.5" is not a whole number'):
        ask.upload_timeout({"GROK_UPLOAD_TIMEOUT_MS": "1.5"})
