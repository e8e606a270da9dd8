"""The committer: a thread that writes and syncs while callers wait.

If waiting threads pass the lead to each other, each write has to wait until the next leader has
woken up and got its turn with the interpreter, behind all threads that were just served. The
committer is awake when its write is done. While callers wait it keeps the lead, and at once writes
what was planned meanwhile.

What can happen, in `_run`:

    woken with the lead         a leader has handed on: write, and go on while callers wait
    the pause is over           if something was posted and is still pending: lead, and write it
    woken by `stop`             end; a waiting thread gets the lead

The committer sleeps without a timeout while no two callers share a sync and nothing is posted.
"""

from __future__ import annotations

import threading

from fmq.basics.clock import Clock
from fmq.store.journal.callers import Waiter
from fmq.store.journal.commit_queue import CommitQueue

PAUSE_SECONDS = 0.005


class Committer:
    """The thread that leads one commit queue while its callers wait."""

    def __init__(self, commit_queue: CommitQueue, clock: Clock) -> None:
        self._commit_queue = commit_queue
        self._clock = clock
        self._heir = Waiter(0)
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="fmq committer", daemon=True)

    def start(self) -> None:
        """Start the thread. From now on leaders pass the lead to it."""
        self._thread.start()
        assert self._thread.ident is not None
        self._heir.thread = self._thread.ident
        self._commit_queue.committer = self._heir

    def stop(self) -> None:
        """End the thread. If it has the lead, a waiting thread gets it."""
        with self._commit_queue.lock:
            self._commit_queue.committer = None
        self._stopping = True
        self._heir.wake()
        self._thread.join()

    def _run(self) -> None:
        queue, heir = self._commit_queue, self._heir
        try:
            stopping = False
            while not stopping:
                if queue.watches_posts:
                    self._clock.wait(heir.lock, PAUSE_SECONDS)
                else:
                    heir.lock.acquire()
                # Read `_stopping` before leading. Once it is set, the committer gets the lead at
                # most once more.
                stopping = self._stopping
                queue.lead_for_others(heir.thread)
        except BaseException as error:
            # No caller can catch this error here. The waiting callers get it, and so do later
            # calls.
            with queue.lock:
                queue.fail(error)
