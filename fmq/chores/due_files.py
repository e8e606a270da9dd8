"""The files with timers that are not due soon. They are written before a checkpoint that names
them, merged when there are many, and removed after the next checkpoint.
"""

from __future__ import annotations

from contextlib import suppress

from fmq.machine.disk import Directory
from fmq.store.index.due_runs import DueRun, RunFile, merged, position_in
from fmq.store.journal.commit_queue import CommitQueue
from fmq.tx.ledger.timers import Timers

PART_ENTRIES = 1 << 13


class DueFiles:
    """The timer files of one engine. Only the thread that runs the chores uses them."""

    def __init__(
        self, directory: Directory, store: bytes, timers: Timers, commit_queue: CommitQueue
    ) -> None:
        self._directory = directory
        self._store = store
        self._timers = timers
        self._commit_queue = commit_queue

    def save(self) -> None:
        """Write the timer files that the next checkpoint will name; durable on return."""
        runs = self._timers.unsaved()
        for run in runs:
            run.save(self._directory, self._store)
        if runs:
            self._directory.sync()

    def remove(self, obsolete: list[DueRun]) -> None:
        """Remove files that no checkpoint names any more. The next opening removes any that are
        left.
        """
        for run in obsolete:
            run.close()
            if run.is_saved:
                with suppress(OSError):
                    self._directory.remove(run.name)

    def merge(self, *, all_of_them: bool = False) -> None:
        """Merge the runs into one, if there are many."""
        timers, queue = self._timers, self._commit_queue
        with queue.lock:
            old = timers.to_merge(all_of_them=all_of_them)
            starts = [run.at for run in old]
            gone = frozenset(timers.gone)
            name = timers.new_name()
        if not old:
            return
        made = RunFile(self._directory, name, self._store)
        sources = [run.entries(at) for run, at in zip(old, starts, strict=True)]
        count, lowest, part = 0, 1 << 63, []
        for entry in merged(sources, gone):
            part.append(entry)
            if len(part) == PART_ENTRIES:
                made.add(b"".join(part))
                count, lowest = count + len(part), min(lowest, *map(position_in, part))
                part = []
        if part:
            made.add(b"".join(part))
            count, lowest = count + len(part), min(lowest, *map(position_in, part))
        crc = made.end(count, lowest)
        self._directory.sync()
        new = DueRun.open(self._directory, name, self._store, 0, crc) if count else None
        with queue.lock, queue.changing:
            timers.replace(old, starts, new, gone)
