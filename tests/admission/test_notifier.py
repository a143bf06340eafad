"""The notifier alone; in its place between settlement and take it is in ``tests/laws``."""

from __future__ import annotations

import pytest
import trio

from embedkit import EmbedkitError, ProviderFailure, ProviderTimeout, notify_provider_timeout


def test_a_timeout_is_told_once_with_itself() -> None:
    heard: list[Exception] = []
    error = ProviderTimeout("late")
    notify_provider_timeout(error, heard.append)
    assert heard == [error]


@pytest.mark.parametrize("error", [None, "ETIMEDOUT", ProviderFailure("no"), TimeoutError(), object()])
def test_nothing_else_is_told(error: object) -> None:
    heard: list[Exception] = []
    notify_provider_timeout(error, heard.append)
    assert heard == []


def test_nobody_need_listen() -> None:
    notify_provider_timeout(ProviderTimeout("late"), None)


@pytest.mark.parametrize("raised", [ValueError("secret"), ExceptionGroup("secret", [OSError("secret")])])
def test_what_a_hook_raises_is_contained_and_logged_without_its_text(
    raised: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    def hook(_: Exception) -> None:
        raise raised

    notify_provider_timeout(ProviderTimeout("secret"), hook)
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.exc_info is None
    assert type(raised).__name__ in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.parametrize("raised", [KeyboardInterrupt, SystemExit, BaseExceptionGroup("", [KeyboardInterrupt()])])
def test_what_is_no_exception_passes(raised: type[BaseException] | BaseException) -> None:
    def hook(_: Exception) -> None:
        raise raised

    expected = raised if isinstance(raised, type) else type(raised)
    with pytest.raises(expected):
        notify_provider_timeout(ProviderTimeout("late"), hook)


async def test_cancelled_passes() -> None:
    async def cancelled() -> BaseException:
        with trio.CancelScope() as scope:
            scope.cancel()
            try:
                await trio.lowlevel.checkpoint()
            except trio.Cancelled as error:
                return error
        raise AssertionError

    error = await cancelled()

    def hook(_: Exception) -> None:
        raise error

    with pytest.raises(trio.Cancelled):
        notify_provider_timeout(ProviderTimeout("late"), hook)


def test_any_embedkit_error_with_a_timeout_s_code_is_one() -> None:
    heard: list[Exception] = []
    error = EmbedkitError("late", code="ESOCKETTIMEDOUT")
    notify_provider_timeout(error, heard.append)
    assert heard == [error]


def test_an_async_hook_is_closed_and_named(caplog: pytest.LogCaptureFixture) -> None:
    async def hook(_: Exception) -> None:
        raise AssertionError

    notify_provider_timeout(ProviderTimeout("late"), hook)
    assert "must be a plain function" in caplog.text
