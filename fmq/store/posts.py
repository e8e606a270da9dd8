"""What was posted: appends that no caller waits for, and that become visible in a moment.

The next write takes a posted append along. If none comes within one or two pauses, the committer
writes it. So while calls follow each other closely, a posted append costs no sync. A caller that
looks for messages in between has it written at once (`CommitQueue.catch_up`, `hurry`).

This file counts writes. It knows no lock, thread or byte; the commit queue calls it under its lock.
"""

from __future__ import annotations

PAUSE_SECONDS = 0.005


class Posts:
    """Which write takes along what was posted last, and whether the committer has to begin it."""

    __slots__ = ("_hurried", "_last", "_seen", "are_watched")

    def __init__(self) -> None:
        self._last = self._seen = self._hurried = -1  # numbers of writes
        self.are_watched = False
        """Whether the committer looks after each pause. Else it sleeps until it is woken."""

    def add(self, write: int) -> None:
        """Note a posted append that the write of this number takes along."""
        self._last = write

    def is_pending(self, next_write: int) -> bool:
        """Return whether a posted append waits for `next_write`."""
        return self._last == next_write

    def hurry(self, next_write: int) -> bool:
        """Return whether `next_write` has to begin now. That is asked for once."""
        if not self.is_pending(next_write) or self._hurried == next_write:
            return False
        self._hurried = next_write
        return True

    def is_due(self, next_write: int) -> bool:
        """Return whether what is posted has waited for a whole pause. Called after each pause."""
        last, seen = self._last, self._seen
        self._seen = last
        if last == seen:
            self.are_watched = False  # nothing was posted for later writes
        return last == seen == next_write

    def are_done(self, write: int) -> bool:
        """Return whether all that was posted is published once the write of this number is."""
        return self._last <= write
