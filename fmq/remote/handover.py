"""Waiting for the lock of a directory: a process on demand that holds it is asked to end."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from fmq.basics.clock import Clock, sleep
from fmq.errors import Closed, FmqError, Locked
from fmq.posix import RealDisk
from fmq.remote.dial import Dialer
from fmq.remote.link import Link
from fmq.remote.wires import silence_of
from fmq.wire.processes import absolute, starting

LOOK_SECONDS = 0.01
ASK_SECONDS = 0.25  # until it is asked again
T = TypeVar("T")


def when_let_go(path: str, opened: Callable[[], T], clock: Clock, timeout: float) -> T:
    """Call `opened` until it does not raise Locked, and return its result.

    Raises Locked after `timeout` seconds. Meanwhile no client starts a process.
    """
    deadline = clock.monotonic() + timeout
    try:
        return opened()
    except Locked as error:
        locked = error

    def wait(seconds: float) -> None:
        if clock.monotonic() + seconds > deadline:
            raise locked
        sleep(clock, seconds)

    with starting(path, wait):
        does_end, ask_at = False, clock.monotonic()
        while True:
            if not does_end and clock.monotonic() >= ask_at:
                does_end = _ask_to_go(absolute(path), clock)
                ask_at = clock.monotonic() + ASK_SECONDS
            try:
                return opened()
            except Locked as error:
                locked = error
            wait(LOOK_SECONDS)


def _ask_to_go(path: str, clock: Clock) -> bool:
    """Ask the process that serves the directory to end. Return whether it does, as one that was
    started on demand. It may not know that yet, or be too busy to answer.
    """
    with suppress(FmqError):
        return bool(ask_once(path, clock, "give_way"))
    return False


def ask_once(path: str, clock: Clock, name: str, *args: object) -> Any:
    """Make a call of the process that serves the directory, and return the result. Raises FmqError:
    its cause is a BlockingIOError if the process takes connections and says nothing for a second.
    """
    dial = Dialer(path, None, clock, starts=False, silence=silence_of(0.0)).dial
    link = Link(path, dial, RealDisk.random, clock, 0.0, list, lambda: None)
    try:
        return link.call(name, *args)
    finally:
        link.close(Closed(f"{path}: the process was asked to end"))
