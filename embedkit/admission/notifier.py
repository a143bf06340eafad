"""The one notifier: tells a run, synchronously, that its provider timed out.

Every lane kind's settlement calls it itself, before the lane can take another ticket. It owns no circuit: it calls the
hook that the caller gave, once, and keeps whatever that hook does from changing the outcome of the ticket.
"""

from __future__ import annotations

import inspect
import logging

from embedkit.admission.ticket import TimeoutHook
from embedkit.errors import is_provider_timeout

logger = logging.getLogger("embedkit.admission")


def notify_provider_timeout(error: object, on_provider_timeout: TimeoutHook | None) -> None:
    """Call ``on_provider_timeout(error)`` if ``error`` is a provider timeout; contain what it raises.

    A hook that trips its circuit and then raises has tripped it. A hook that raises first has no guarantee, and none
    is invented for it. Cancelled, KeyboardInterrupt and other ``BaseException`` pass.
    """
    if on_provider_timeout is None or not is_provider_timeout(error):
        return
    assert isinstance(error, Exception)
    try:
        returned = on_provider_timeout(error)
    except Exception as raised:  # the source error stands, whatever a hook does
        logger.warning("on_provider_timeout raised %s; the timeout it was told of stands", type(raised).__name__)
        return
    if inspect.iscoroutine(returned):
        # It would run a scheduling step later, after the lane has moved on: a trip that comes too late.
        returned.close()
        logger.warning("on_provider_timeout must be a plain function; an async one cannot run before the next take")
