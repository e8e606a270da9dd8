"""`fmq.stop`: asks the process that serves a directory to end, and waits until it has."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

from fmq.arguments.names import check_seconds
from fmq.arguments.path import PathLike, check_local, text_of
from fmq.basics.clock import Clock, SystemClock, sleep
from fmq.errors import Locked, NotServed, OutcomeUnknown
from fmq.errors.storage_errors import unreadable_within
from fmq.machine.disk import Directory
from fmq.posix import RealDisk
from fmq.recovery import checkpoint as checkpoints
from fmq.recovery.layout import LOCK, look, store_of
from fmq.remote.handover import ask_once
from fmq.store.journal.durable_page import PAGE
from fmq.wire.processes import STOPS, absolute, starting

LOOK_SECONDS = 0.01
GRACE_SECONDS = 1.0
"""How long a process may have the directory open before it serves, or after it has."""
END_SECONDS = 30.0
"""How long a process may take to close its engine, once nothing is in hand."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """What a call of `fmq.stop` has found."""

    path: str
    holder: str | None
    """The process that had the directory open, such as "process 4711"; None if none had."""
    is_clean: bool
    """Whether the engine was closed with a checkpoint. If not, the process was killed: nothing that
    was acknowledged is lost, and the next opening recovers the directory."""


def stop(path: str | PathLike, *, timeout: float = 10.0) -> Stopped:
    """End the process that serves the directory at `path`, and return when it has.

    It takes nothing new, for at most `timeout` seconds lets its clients settle what they have in
    hand, answers what it has taken, writes a checkpoint and closes. Raises Locked, and changes
    nothing, if a program has the directory open that cannot be stopped from outside.
    """
    where, clock = absolute(check_local(text_of(path))), SystemClock()
    seconds = check_seconds("timeout", timeout)
    with unreadable_within(where):
        opened = RealDisk().directory(where, make=False)
    with closing(opened) as directory:
        locked = directory.locked_by(LOCK)
        if locked is None:
            return Stopped(where, None, _is_clean(directory))
        ends = clock.monotonic() + seconds + END_SECONDS
        # Meanwhile no client starts the next process.
        with starting(where, _waiting(clock, ends, locked)):
            wait = _waiting(clock, ends, locked)
            refuses_at = clock.monotonic() + GRACE_SECONDS
            ends_soon: bool | None = False
            while (now := directory.locked_by(LOCK)) is not None and now.holder == locked.holder:
                ends_soon = ends_soon or _ask(where, clock, seconds)
                if ends_soon is False and clock.monotonic() > refuses_at:
                    raise Locked(where, locked.holder, ends_itself=True)
                wait(LOOK_SECONDS)
            return Stopped(where, locked.holder, _is_clean(directory))


def _waiting(clock: Clock, ends: float, locked: Locked) -> Callable[[float], None]:
    """Return a function that sleeps, or raises NotServed from the time `ends` on."""

    def wait(seconds: float) -> None:
        if clock.monotonic() > ends:
            raise NotServed(
                f"{locked.path}: {locked.holder} has the directory open still. It was asked to "
                "end, unless it answers nothing. Nothing was lost. Call again to wait longer, or "
                "kill it: nothing that was acknowledged is lost then."
            )
        sleep(clock, seconds)

    return wait


def _ask(path: str, clock: Clock, seconds: float) -> bool | None:
    """Ask the process to end. Return whether it does; None if it is too busy to answer."""
    try:
        return bool(ask_once(path, clock, "stop", seconds))
    except (NotServed, OutcomeUnknown) as error:
        is_busy = isinstance(error.__cause__, BlockingIOError)
        return None if is_busy else STOPS in str(error)


def _is_clean(directory: Directory) -> bool:
    """Return whether the last engine was closed, and not killed."""
    layout = look(directory)
    if layout.fresh:
        return True
    slot = checkpoints.read(directory, store_of(directory, layout))
    return slot is not None and slot.clean and PAGE not in layout.names
