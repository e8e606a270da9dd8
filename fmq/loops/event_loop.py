"""What a server needs of an event loop: that of asyncio, or that of a test."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from threading import get_ident
from typing import Any, Protocol

DAY = 86400.0  # a longer timer is more than some loops can take


class Timer(Protocol):
    """A call that will be made later, unless it is cancelled."""

    def cancel(self) -> None: ...


class Loop(Protocol):
    """What calls back: the event loop of asyncio, or that of a test."""

    def call_soon(self, callback: Callable[..., object], *args: Any) -> object: ...

    def call_soon_threadsafe(self, callback: Callable[..., object], *args: Any) -> object: ...

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> Timer: ...


def notifier(loop: Loop, call: Callable[[], object]) -> Callable[[], None]:
    """Return a function that makes `call` soon, in the thread of `loop`. The caller runs in that
    thread; any thread may call the function.
    """
    thread = get_ident()

    def notify() -> None:
        with suppress(RuntimeError):  # the loop is closed, and nothing waits any more
            if get_ident() == thread:
                loop.call_soon(call)  # needs no system calls to wake the loop
            else:
                loop.call_soon_threadsafe(call)

    return notify
