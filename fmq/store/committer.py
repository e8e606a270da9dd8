"""The thread that leads while others wait.

Where leaders hand on to each other, each write waits for an heir: for its wake-up, and for its
turn with the interpreter behind all who were just served. The committer is awake when its write
is done: while somebody waits it is its own heir, and writes at once what was planned meanwhile.
It sleeps while nobody shares a sync.
"""

from __future__ import annotations

import threading

from fmq.store.commit_queue import CommitQueue, Waiter, wake


class Committer:
    """Leads one group while more threads than one have something to write."""

    def __init__(self, commit_queue: CommitQueue) -> None:
        self._commit_queue = commit_queue
        self._heir = Waiter(0, 0)
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="fmq committer", daemon=True)

    def start(self) -> None:
        """From now on leaders hand on to it."""
        self._thread.start()
        assert self._thread.ident is not None
        self._heir.thread = self._thread.ident
        self._commit_queue.committer = self._heir

    def stop(self) -> None:
        """End the thread. A lead that it has goes to one of those who wait."""
        with self._commit_queue.lock:
            self._commit_queue.committer = None
        self._stopping = True
        wake(self._heir)
        self._thread.join()

    def _run(self) -> None:
        queue, heir = self._commit_queue, self._heir
        try:
            stopping = False
            while not stopping:
                heir.lock.acquire()
                # Looked at before: once it is said, no lead comes here any more but this one.
                stopping = self._stopping
                queue.lead_for_others(heir.thread)
        except BaseException as error:
            # Nobody called this thread: who waits is told, and so is the next call.
            with queue.lock:
                queue.fail(error)
