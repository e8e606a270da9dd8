"""What an engine does for itself: indexes, spares, checkpoints, relocation, retention.

All of it is off the path of those who write, and all of it is derived or can be repeated, so a
full disk met here ends nothing: it is noted, shown by `stats()`, and tried again.

A thread runs it when there is something to do; an engine opened with `background=False` runs
it at the end of its own calls, in the same order, which makes it deterministic.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from fmq.chores.checkpointer import Checkpointer
from fmq.chores.retention import AT_ONCE_MAX, Retention
from fmq.clock import Clock
from fmq.consume.groups import Groups
from fmq.disk import Directory, is_full
from fmq.errors import (
    Closed,
    Damaged,
    EngineFailed,
    Nested,
    NewerFormat,
    StorageFull,
    TooLarge,
    Unreadable,
)
from fmq.options import Options
from fmq.store.catalog import Catalog
from fmq.store.section import is_mine
from fmq.store.spares import ZEROED_BYTES_PER_SECOND_MAX
from fmq.tx.manager import TransactionManager
from fmq.tx.writer import Writer


class Chores:
    """The engine's own chores. `round` does all that is due; one thread at a time."""

    def __init__(
        self,
        directory: Directory,
        writer: Writer,
        manager: TransactionManager,
        catalog: Catalog,
        groups: Groups,
        checkpointer: Checkpointer,
    ) -> None:
        self._manager = manager
        self._catalog = catalog
        self.checkpointer = checkpointer
        self._writer = writer
        self._journal = writer.journal
        self._ledger = writer.ledger
        self._commit_queue = writer.commit_queue
        self._clock: Clock = writer.clock
        self._options: Options = writer.options
        self.retention = Retention(directory, writer, catalog, groups)
        self._running = threading.RLock()  # by the thread that does chores
        self._last_seen = self._ledger.applied_upto
        self._last_change = self._clock.monotonic()
        self._last_roll = self._last_change
        self._writing = self._journal.current.base
        self.trouble: str | None = None
        self._no_room: str | None = None  # for what this round would have written

    # --- one round --------------------------------------------------------------------------

    def round(self) -> None:
        """Do whatever is due; EngineFailed, or Closed, if nothing is done any more."""
        with self._running:
            self._round()

    def is_running_here(self) -> bool:
        """Return whether this thread does a chore now: then the call is a signal handler's."""
        return is_mine(self._running)

    def _check(self) -> None:
        """Once `end` is done the directory may be somebody else's."""
        with self._commit_queue.lock:
            self._commit_queue.check()

    def _round(self) -> None:
        self._check()
        try:
            self._flush_pending()
            self._release_dropped()
            self._make_spare()
            self._no_room = None
            trouble = self._if_there_is_room(self._save)
            self.retention.remove()
            if self.retention.wanted:
                trouble = self._retain() or trouble
            self.trouble = trouble or self._no_room
        except StorageFull as error:
            self.trouble = str(error)
        except OSError as error:
            self.trouble = _derived(error)

    def _save(self) -> str | None:
        """Write what recovery and readers can do without; what is wrong, if something is."""
        self._write_indexes()
        trouble = self._relocate()
        if self._checkpoint_due():
            self._checkpoint(clean=False)
        return trouble

    def _if_there_is_room(self, work: Callable[[], str | None]) -> str | None:
        """Do `work`; where the disk is full it waits until retention, which goes on, has made room
        for it.
        """
        try:
            return work()
        except StorageFull as error:
            self._no_room = str(error)
        except OSError as error:
            if not is_full(error):
                raise
            self._no_room = _derived(error)
        return None

    def _relocate(self) -> str | None:
        """Write again what is too far behind; what is wrong with it, if it cannot be read."""
        try:
            while self._manager.relocate_oldest():
                pass
        except (Damaged, NewerFormat, OSError) as error:  # only what it reads can raise that
            return f"an undecided transaction keeps its segment, and cannot be read: {error}"
        return None

    def attempt(self) -> bool:
        """A round that raises nothing: whoever's call it follows has what it asked for. False if
        the engine has stopped, as the next call will say.
        """
        if self.is_running_here():
            return True  # this call is a signal handler's, and the round goes on after it
        try:
            self.round()
        except Nested:
            return True  # this call is a signal handler's, made inside of another one
        except (EngineFailed, Closed):
            return False
        except BaseException as error:
            # Nobody foresaw it: better no engine than a wrong one.
            with self._commit_queue.lock:
                self._commit_queue.fail(error)
            if not isinstance(error, Exception):
                raise
            return False
        return True

    def _flush_pending(self) -> None:
        with self._commit_queue.lock:
            left_over = self._journal.pending_bytes
        if left_over:
            self._commit_queue.flush()

    def _release_dropped(self) -> None:
        with self._commit_queue.lock, self._commit_queue.changing:
            self._writer.release_dropped()

    def _write_indexes(self) -> None:
        while self._ledger.sealed:
            index = self._ledger.sealed[0]
            self._catalog.write(index)
            with self._commit_queue.lock, self._commit_queue.changing:
                self._catalog.add(index.base)
                self._ledger.sealed.pop(0)

    def _make_spare(self) -> None:
        now = self._clock.monotonic()
        current = self._journal.current.base
        room = (now - self._last_roll) * ZEROED_BYTES_PER_SECOND_MAX
        fast = current > 0 and room < self._journal.current.capacity
        if current != self._writing:
            self._writing, self._last_roll = current, now
        self._journal.spares.make_ahead(zeros=not fast)

    # --- checkpoint -------------------------------------------------------------------------

    def _checkpoint_due(self) -> bool:
        applied = self._ledger.applied_upto
        now = self._clock.monotonic()
        if applied != self._last_seen:
            self._last_seen, self._last_change = applied, now
        if applied >= self.pressing_from():
            return True
        idle = now - self._last_change >= self._options.checkpoint_idle_seconds
        return applied != self.checkpointer.upto and idle

    def pressing(self) -> bool:
        """Whether there is something to do before the engine is idle. Under the engine's lock."""
        return self._ledger.applied_upto >= self.pressing_from() or bool(self._ledger.sealed)

    def pressing_from(self) -> int:
        """The position from which on a checkpoint is due."""
        return self.checkpointer.upto + self._options.checkpoint_bytes

    def pending(self) -> bool:
        """Whether something waits for the next sync."""
        return bool(self._journal.pending_bytes)

    def idle(self) -> bool:
        """Whether everything applied is in a checkpoint, so that there is nothing to wait for."""
        if self._journal.spares.lacks:
            return False  # whoever makes room need not tell
        if self._options.retain_seconds is not None and len(self._journal.segments) > 1:
            return False  # time alone makes retention due
        retention = self.retention
        if retention.wanted and not retention.looked and retention.due():
            return False  # it was opened so
        applied = self._ledger.applied_upto == self.checkpointer.upto
        return applied and not self._ledger.sealed and not self._journal.pending_bytes

    def checkpoint(self) -> None:
        """Write a checkpoint of this instant now."""

        with self._running:
            self._check()
            self._checkpoint(clean=False)

    def end(self, *, clean: bool) -> None:
        """The engine takes nothing any more: wait for what is being done, and let nothing follow
        but the last checkpoint, which there is only of an engine that was drained: `clean`.
        """

        with self._running:
            if clean:
                self._checkpoint(clean=True)

    def _checkpoint_if_there_is_room(self) -> None:
        self._if_there_is_room(lambda: self._checkpoint(clean=False))

    def _checkpoint(self, *, clean: bool) -> None:
        self._write_indexes()
        self.checkpointer.take(clean=clean)

    # --- retention --------------------------------------------------------------------------

    def _retain(self) -> str | None:
        """Drop what is over the limits; why not, if something is wrong."""
        try:
            if self.retention.due():
                while (dropped := self._drop_oldest()) == AT_ONCE_MAX:
                    pass  # there may be as many again
                if dropped and self.retention.due():
                    # The older checkpoint may be all that kept the next. Not until nothing is due:
                    # a STATE takes room, too, and where that is much it would never end.
                    self._drop_oldest()
        except (Damaged, NewerFormat, Unreadable) as error:
            return f"retention stands still: {error}"
        except TooLarge as error:
            return f"retention stands still, as what it carries over fits no segment: {error}"
        return None

    def _drop_oldest(self) -> int:
        """Drop what may go now; how many segments."""
        retention = self.retention
        if (
            not retention.choose(self.checkpointer.scan_from)
            and self._ledger.applied_upto > self.checkpointer.upto
        ):
            self._checkpoint_if_there_is_room()
        segments, locks = retention.lock_out_exports(retention.choose(self.checkpointer.scan_from))
        try:
            if segments:
                # Not again for want of the checkpoint, which may fail round after round.
                if self._ledger.floor < segments[-1].limit:
                    retention.carry_over(segments)
                # Without it recovery begins at an older one, which lies above them, and finds the
                # STATE on its way: it may have to, where a crash comes in between.
                self._checkpoint_if_there_is_room()
                retention.forget(segments)
                retention.remove()
        finally:
            for lock in locks:
                lock.close()
        return len(segments)


def _derived(error: OSError) -> str:
    """Only files that are derived are written here, and each is checked when it is read: without
    it recovery has more to do, and nothing is lost.
    """
    return f"a file that can be built again: {error}; trying again later"
