"""Keeps the program from forking while a thread of fmq uses a connection to a database.

SQLite counts its locks in the process. A child that inherits an open connection believes that it
holds them, and another process may then remove what the child has committed. The threads that ask
databases come and go by themselves, so a fork waits until none of them is at it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from fmq.posix import around_forks

# A database that does not answer must not block forks for ever. But SQLite may wait for the lock of
# another process for more than a few seconds, and forking then may lose what is committed.
PATIENCE_SECONDS = 60.0
logger = logging.getLogger("fmq.bind")


class ForkGuard:
    """Keeps forks and the use of connections apart in time."""

    def __init__(self) -> None:
        self.patience = PATIENCE_SECONDS
        self._changed = threading.Condition()
        self._users = 0

    @contextmanager
    def using(self) -> Iterator[None]:
        """Run the block while no fork happens. The block uses a connection of its own."""
        with self._changed:
            self._users += 1
        try:
            yield
        finally:
            with self._changed:
                self._users -= 1
                self._changed.notify_all()

    def before_fork(self) -> None:
        """Wait until no connection is in use, and let no use begin."""
        self._changed.acquire()
        if not self._changed.wait_for(lambda: not self._users, self.patience):
            logger.warning(
                "this process forks while a thread asks a database, which has not answered for "
                "%g s. If it is SQLite, the child must not use that database.",
                self.patience,
            )

    def after_in_parent(self) -> None:
        """Let threads use connections again."""
        self._changed.release()

    def after_in_child(self) -> None:
        """Begin anew, because the threads that used connections do not exist in the child."""
        self.__init__()  # type: ignore[misc]


GUARD = ForkGuard()
around_forks(GUARD.before_fork, GUARD.after_in_parent, GUARD.after_in_child)
