"""How an engine ends: drained and closed, synced at the end of the process, or left behind in the
child of a fork.
"""

from __future__ import annotations

import atexit
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from threading import RLock, current_thread
from typing import Protocol

from fmq.errors import Closed, FmqError, StorageError
from fmq.parts import Parts
from fmq.posix import after_fork_in_child
from fmq.store.section import is_mine

OWN_THREADS = "fmq "  # what their names begin with


class Remembered(Protocol):
    """An engine, as a fork and the end of the process see it."""

    def _forked(self) -> None:
        """This is the child, and the engine is the parent's."""

    def _process_ends(self) -> None:
        """Make durable what no call waits for."""


@contextmanager
def refusals_of_close(path: str) -> Iterator[None]:
    """Raise a StorageError for a bare OSError of the block, which has closed all that it could."""
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
    """The steps from an open engine to a closed one. A call that follows an interrupted one goes on
    with the step that was interrupted: a directory is not let go while a thread may write there.
    """

    def __init__(self) -> None:
        self._left: list[Callable[[], None]] = []
        self._lock = RLock()

    def begin(self, steps: list[Callable[[], None]]) -> None:
        """Note the steps. Each may be taken a second time, after an interrupt."""
        self._left = steps

    def go_on(self) -> None:
        """Take every step that is left, and raise the first error at the end. Wait while another
        thread does so; a thread of the engine's own returns at once, as that one may wait for it.
        """
        if is_mine(self._lock):
            return  # called by one of the steps, or by a signal handler inside of one
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


def drain(parts: Parts, refusal: Closed) -> bool:
    """Let all that was planned become durable, and refuse the rest; False if it failed."""
    queue, journal = parts.commit_queue, parts.journal
    while True:
        with parts.lock:
            if queue.broken():
                return False
            # With sync="never" an idle engine may have written what it has not synced.
            if queue.idle() and journal.durable_to == journal.position:
                queue.close(refusal)
                return True
        with suppress(FmqError):
            queue.flush(force=True)


def let_go_of_locks(parts: Parts) -> None:
    """In the child of a fork: a thread that had one does not exist, and would never release it."""
    # Made anew and not released: a thread that was just getting one has it and had not said so
    # yet, and then a release is refused.
    for lock in (parts.lock, *parts.locks(), parts.catalog.looking):
        lock._at_fork_reinit()  # type: ignore[attr-defined]
    parts.journal.files.forked()


_open: weakref.WeakSet[Remembered] = weakref.WeakSet()
_workers = {"told": False}  # whether multiprocessing calls `_process_ends` in this process


def remember(engine: Remembered) -> None:
    """From now on a fork leaves it dead in the child, and the end of the process syncs it."""
    _open.add(engine)
    util = sys.modules.get("multiprocessing.util")
    if util is not None and not _workers["told"]:
        # Its children end without atexit.
        util.Finalize(None, _process_ends, exitpriority=0)
        _workers["told"] = True


def forget(engine: Remembered) -> None:
    """It is closed."""
    _open.discard(engine)


def _after_fork() -> None:
    _workers["told"] = False
    for engine in list(_open):
        engine._forked()


def _process_ends() -> None:
    """Sync all engines, also after one that fails. Daemon threads still run, so no lock stays."""
    with ExitStack() as stack:
        for engine in list(_open):
            stack.callback(engine._process_ends)


after_fork_in_child(_after_fork)
atexit.register(_process_ends)
