from __future__ import annotations

import pytest

from embedkit import errors
from embedkit.ask.kinds import KINDS, RETRIED, Kind, delay_after, kind_of, kind_of_status


def with_status(kind: type[errors.ProviderError], status: int | None) -> errors.ProviderError:
    return kind("it failed", status=status)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (errors.ProviderTimeout("late"), "timeout"),
        (errors.ProviderFailure("late", code="ETIMEDOUT"), "timeout"),
        (errors.QueueWaitExceeded("late"), "timeout"),
        (errors.DeadlineExceeded("late"), "timeout"),
        (errors.ConnectionRefused("nobody"), "network"),
        (errors.TransportClosed("cut"), "network"),
        (with_status(errors.TransportClosed, 200), "network"),
        (with_status(errors.TransportClosed, 500), "upstream"),
        (with_status(errors.TransportClosed, 401), "auth"),
        (with_status(errors.ProviderBusy, 429), "rate-limit"),
        (with_status(errors.ProviderBusy, 400), "rate-limit"),
        (with_status(errors.ProviderBusy, 503), "upstream"),
        (with_status(errors.ProviderBusy, 408), "upstream"),
        (with_status(errors.QuotaExhausted, 402), "rate-limit"),
        (with_status(errors.ProviderAuthError, 403), "auth"),
        (with_status(errors.ModelNotResident, 404), "not-found"),
        (with_status(errors.ModelNotResident, 400), "upstream"),
        (with_status(errors.ContentRefused, 400), "config"),
        (with_status(errors.ResponseInvalid, 200), "parse"),
        (with_status(errors.ProviderUnavailable, 502), "upstream"),
        (with_status(errors.ProviderFailure, 301), "config"),
        (with_status(errors.ProviderFailure, 501), "upstream"),
        (with_status(errors.ProviderFailure, None), "network"),
        (errors.LaneFull("full"), "rate-limit"),
        (errors.LaneClosed("closed"), "aborted"),
        (errors.TicketWithdrawn("gone"), "aborted"),
        (errors.SettingsError("wrong"), "config"),
        (RuntimeError("a bug"), "unknown"),
    ],
)
def test_each_error_has_its_kind(error: Exception, kind: Kind) -> None:
    assert kind_of(error) == kind


def test_every_status_has_a_kind() -> None:
    assert {kind_of_status(status) for status in range(100, 600)} <= set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_tried_again_is_tried_once(kind: Kind) -> None:
    again = kind in {"network", "rate-limit", "empty", "upstream"}
    assert (kind in RETRIED) == again
    assert delay_after(kind, 1, None) == (2.0 if again else None)
    assert delay_after(kind, 2, None) is None


@pytest.mark.parametrize(
    ("hint", "gives_up", "delay"),
    [
        (None, False, 2.0),
        (7.0, False, 7.0),
        (0.0, False, 0.0),
        (600.0, False, 30.0),
        (600.0, True, None),
        (30.0, True, 30.0),
    ],
)
def test_a_hint_is_followed_up_to_a_bound(hint: float | None, gives_up: bool, delay: float | None) -> None:
    assert delay_after("rate-limit", 1, hint, gives_up=gives_up) == delay
