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
    """The thread that leads one commit queue while its callers wait. Or two of them, which relieve
    each other while a write is on its way.
    """

    def __init__(self, commit_queue: CommitQueue, clock: Clock, *, is_far: bool = False) -> None:
        """`is_far` says that two writes may be on their way."""
        self._commit_queue = commit_queue
        self._clock = clock
        self._stopping = False
        self._heirs = [Waiter(0) for _ in range(2 if is_far else 1)]
        self._threads = [
            threading.Thread(target=self._run, args=(heir,), name="fmq committer", daemon=True)
            for heir in self._heirs
        ]

    def start(self) -> None:
        """Start the threads. From now on leaders pass the lead to them."""
        for heir, thread in zip(self._heirs, self._threads, strict=True):
            thread.start()
            assert thread.ident is not None
            heir.thread = thread.ident
        if len(self._heirs) > 1:
            self._commit_queue.relief = self._heirs[1]
        self._commit_queue.committer = self._heirs[0]

    def stop(self) -> None:
        """End the threads. If one has the lead, a waiting thread gets it."""
        with self._commit_queue.lock:
            self._commit_queue.committer = self._commit_queue.relief = None
        self._stopping = True
        for heir, thread in zip(self._heirs, self._threads, strict=True):
            heir.wake()
            thread.join()

    def _run(self, heir: Waiter) -> None:
        queue = self._commit_queue
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
