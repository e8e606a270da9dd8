"""Signals that end a verb which runs on and on."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
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
