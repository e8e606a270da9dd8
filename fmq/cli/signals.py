"""Signals that end a verb which runs on and on."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

ENDS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def stopped_by_signals() -> Iterator[threading.Event]:
    """Return an event that a signal which ends the process sets."""
    stop = threading.Event()
    before = {each: signal.signal(each, lambda *_: stop.set()) for each in ENDS}
    try:
        yield stop
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def call_when_set(stop: threading.Event, call: Callable[[], None]) -> None:
    """Let a thread of its own wait for `stop`, and then call `call`."""

    def wait() -> None:
        stop.wait()
        call()

    threading.Thread(target=wait, daemon=True).start()
