"""The ends of an engine: drained and closed, synced at the end of the process, or dead in the child
of a fork.
"""

from __future__ import annotations

import atexit
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from threading import RLock, current_thread
from typing import Protocol

from fmq.assembly.parts import Parts
from fmq.basics.lock_owner import is_mine
from fmq.errors import Closed, FmqError, StorageError
from fmq.posix import after_fork_in_child
from fmq.tx.commands.writer import Writer

OWN_THREADS = "fmq "  # the prefix of the names of an engine's threads


class Remembered(Protocol):
    """An engine as a fork and the end of the process see it."""

    def forked(self) -> None:
        """End the engine in the child of a fork. The parent's engine goes on."""

    def process_ends(self) -> None:
        """Make durable what no call waits for."""


@contextmanager
def refusals_of_close(path: str) -> Iterator[None]:
    """Raise StorageError for an OSError of the block. The block has closed everything that it
    could.
    """
    try:
        yield
    except FmqError:
        raise
    except OSError as error:
        raise StorageError(
            f"{path}: closed, but the machine refused a part of it ({error}). What had been "
            "durable is safe, and what could be released was. Open the directory again; if it is "
            "Locked then, end this process first."
        ) from error


class Closing:
    """The steps by which an open engine is closed.

    After an interrupt the next call goes on with the interrupted step. So the directory is not
    released while a thread may still write there.
    """

    def __init__(self) -> None:
        self._left: list[Callable[[], None]] = []
        self._lock = RLock()

    def begin(self, steps: list[Callable[[], None]]) -> None:
        """Note the steps. A step may be repeated after an interrupt."""
        self._left = steps

    def go_on(self) -> None:
        """Take all steps that are left. Raise the first error at the end.

        Wait while another thread takes them. A thread of the engine returns at once: the other
        thread may wait for it.
        """
        if is_mine(self._lock):
            return  # this thread is taking a step, which has made this call
        if current_thread().name.startswith(OWN_THREADS):
            if not self._lock.acquire(blocking=False):
                return
            self._lock.release()
        with self._lock:
            self._take_steps()

    def _take_steps(self) -> None:
        failed: Exception | None = None
        while self._left:
            try:
                self._left[0]()
            except Exception as error:
                failed = failed or error
            self._left.pop(0)
        if failed is not None:
            raise failed


def wake_all(parts: Parts) -> None:
    """Wake all waiting calls. They find that the engine is closing."""
    with parts.lock:
        parts.wake_all()


class LastCheckpoint:
    """The last writes of an engine that is closing."""

    def __init__(self, parts: Parts, refusal: Closed) -> None:
        """Calls that come later raise `refusal`."""
        self._parts = parts
        self._refusal = refusal
        self._was_interrupted = False

    def write(self) -> None:
        """Make all planned appends durable, and write a checkpoint. Raises if the sync of the
        appends failed.
        """
        queue = self._parts.commit_queue
        had_failed = queue.broken()
        # Without this checkpoint, or with half of it, the next opening replays a little more.
        clean = drain(self._parts, self._refusal) and not self._was_interrupted
        self._was_interrupted = True  # remember the interrupt, for the next call of close
        with suppress(OSError):
            self._parts.chores.end(clean=clean)
        if queue.broken() and not had_failed:
            # Sends without a sync may be lost, and no call has raised an error about that.
            raise queue.failed_error() from queue.failure


def drain(parts: Parts, refusal: Closed) -> bool:
    """Make all planned appends durable, and refuse new ones. Return False if the engine has
    failed.
    """
    queue, journal = parts.commit_queue, parts.journal
    with suppress(FmqError):  # on a full disk the page keeps the attempts
        queue.run(Writer.write_attempts, parts.writer, wait=True)
    while True:
        with parts.lock:
            if queue.broken():
                return False
            # With sync="never", an idle engine may have written bytes that are not synced.
            if queue.idle() and journal.durable_to == journal.position:
                queue.close(refusal)
                return True
        with suppress(FmqError):
            queue.flush(force=True)


def free_locks(parts: Parts) -> None:
    """Make new locks in the child of a fork: threads that held the old ones do not exist there."""
    # Made anew, not released: releasing fails if a thread had taken the lock and was not yet noted
    # as its owner.
    for lock in (parts.lock, *parts.locks(), parts.catalog.looking):
        lock._at_fork_reinit()  # type: ignore[union-attr]
    parts.journal.files.forked()


# The open doors, in the order in which they were opened, which a weak set does not keep. The values
# mean nothing.
_open: weakref.WeakKeyDictionary[Remembered, None] = weakref.WeakKeyDictionary()
_workers = {"registered": False}  # True once multiprocessing calls `_process_ends` here


def remember(engine: Remembered) -> None:
    """Register an engine. A fork ends it in the child, and the end of the process syncs it."""
    _open[engine] = None
    util = sys.modules.get("multiprocessing.util")
    if util is not None and not _workers["registered"]:
        # The children of multiprocessing end without atexit.
        util.Finalize(None, _process_ends, exitpriority=0)
        _workers["registered"] = True


def forget(engine: Remembered) -> None:
    """Drop an engine that is closed."""
    _open.pop(engine, None)


def _after_fork() -> None:
    _workers["registered"] = False
    for engine in list(_open):
        engine.forked()


def _process_ends() -> None:
    """Sync all engines, the newest first, even if one of them fails. Daemon threads still run, and
    release locks.
    """
    with ExitStack() as stack:
        for engine in list(_open):
            stack.callback(engine.process_ends)


after_fork_in_child(_after_fork)
atexit.register(_process_ends)
