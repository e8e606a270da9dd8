"""Waiting for the lock of a directory: a process on demand that holds it is asked to end."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from fmq.basics.clock import Clock, sleep
from fmq.errors import Closed, FmqError, Locked
from fmq.posix import RealDisk
from fmq.remote.dial import Dialer
from fmq.remote.link import Link
from fmq.wire.processes import absolute, starting

LOOK_SECONDS = 0.01
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
        _ask_to_go(absolute(path), clock)
        while True:
            try:
                return opened()
            except Locked as error:
                locked = error
            wait(LOOK_SECONDS)


def _ask_to_go(path: str, clock: Clock) -> None:
    """Ask the process that serves the directory to end. A process that was started on demand does
    so.
    """
    dial = Dialer(path, None, clock, starts=False).dial
    link = Link(path, dial, RealDisk.random, clock, 0.0, list, lambda: None)
    try:
        with suppress(FmqError):
            link.call("give_way")
    finally:
        link.close(Closed(f"{path}: the process was asked to go"))
