"""What an engine does besides its calls: indexes, spares, checkpoints, relocation, retention.

No call waits for a chore. What a chore writes can be built again or repeated, so a full disk ends
nothing here: `stats().trouble` shows it, and the next round tries again.

A thread runs the chores when there is something to do (thread.py). An engine opened with
`background=False` runs them at the end of its calls, so a program does the same in every run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from fmq.arguments.options import Options
from fmq.basics.clock import Clock
from fmq.basics.lock_owner import is_mine
from fmq.chores.carried_ids import IdCarrier
from fmq.chores.checkpointer import Checkpointer
from fmq.chores.due_files import DueFiles
from fmq.chores.left_overs import LeftOvers
from fmq.chores.retention import AT_ONCE_MAX, Retention
from fmq.chores.timer_thread import TimerThread
from fmq.chores.topic_trim import trim_topics
from fmq.consume.administration.broadcast import Broadcasts
from fmq.consume.administration.change_plans import Changes
from fmq.consume.administration.group_looks import GroupLooks
from fmq.consume.groups.burial import Burying
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
from fmq.machine.disk import Directory, is_full
from fmq.store.index.catalog import Catalog
from fmq.store.journal.spares import ZEROED_BYTES_PER_SECOND_MAX, ZEROED_WRITE_BYTES_MAX
from fmq.store.reading.key_marks import KeyMarks
from fmq.tx.commands.delays import Delays
from fmq.tx.commands.manager import TransactionManager
from fmq.tx.commands.writer import Writer
from fmq.tx.schedules.schedules import Schedules

TRIM_SECONDS = 10.0  # between two looks at topics with their own retention, and at left-overs


class Chores:
    """The chores of one engine. `round` runs all that are due, in one thread at a time."""

    def __init__(
        self,
        directory: Directory,
        writer: Writer,
        manager: TransactionManager,
        catalog: Catalog,
        changes: Changes,
        groups: GroupLooks,
        checkpointer: Checkpointer,
        burying: Burying,
        delays: Delays,
        due_files: DueFiles,
        marks: KeyMarks,
        broadcasts: Broadcasts,
        schedules: Schedules,
    ) -> None:
        self._manager = manager
        self._catalog = catalog
        self._marks = marks
        self._broadcasts = broadcasts
        self._changes = changes
        self._groups = groups
        self._trim_at = 0.0
        self.checkpointer = checkpointer
        self._delays = delays
        self._schedules = schedules
        self._due_files = due_files
        # Publishes due timers in its own thread. None: each round publishes them.
        self.timer_thread: TimerThread | None = None
        self._writer = writer
        self._journal = writer.journal
        self._ledger = writer.ledger
        self._commit_queue = writer.commit_queue
        self._clock: Clock = writer.clock
        self._options: Options = writer.options
        ids = IdCarrier(writer, catalog, manager.message_ids)
        self.retention = Retention(directory, writer, catalog, burying, ids)
        self._left_overs = LeftOvers(writer, manager.decisions)
        self._running = threading.RLock()  # held by the thread that runs a round
        self._last_seen = self._ledger.shown_to
        self._last_change = self._clock.monotonic()
        self._last_roll = self._last_change
        self._writing = self._journal.current.base
        self._writes = sum(self._commit_queue.written)  # until the last roll
        self._writes_are_large = False
        self._trouble: str | None = None
        # A file that this round could not write: the disk was full.
        self._no_room: str | None = None
        # How many spares had been made when the last round met a full disk.
        self._full_at: int | None = None

    # --- one round --------------------------------------------------------------------------

    @property
    def trouble(self) -> str | None:
        """Return what the last round could not do, or None. After a full disk, a call that finds
        room for a segment ends the trouble: the next round catches up.
        """
        has_room = self._full_at is not None and self._journal.spares.made > self._full_at
        return None if has_room else self._trouble

    def round(self) -> None:
        """Run all chores that are due. Raises EngineFailed or Closed if the engine has stopped."""
        with self._running:
            self._round()

    def is_running_here(self) -> bool:
        """Return whether this thread is inside of a round. Then a signal handler has made
        the call.
        """
        return is_mine(self._running)

    def _check(self) -> None:
        """Raise if the engine has stopped: another engine may have the directory by now."""
        with self._commit_queue.lock:
            self._commit_queue.check()

    def _round(self) -> None:
        self._check()
        self._groups.expire_members()
        try:
            self._flush_pending()
            self._release_dropped()
            self._broadcasts.sweep()
            self._no_room = None
            if self.timer_thread is None:
                self._if_there_is_room(self._fire_due)
            elif self.timer_thread.is_wanted:
                self.timer_thread.start()
            self._make_spare()
            trouble = self._if_there_is_room(self._save)
            self.retention.remove()
            if self._clock.monotonic() >= self._trim_at:
                self._trim_at = self._clock.monotonic() + TRIM_SECONDS
                trim_topics(self._changes)
                self._left_overs.settle()
            if self._journal.position >= self.retention.looks_from:
                trouble = self._retain() or trouble
            trouble = self._delays.unreadable or self._schedules.trouble or trouble
            no_room = self._delays.no_room or self._schedules.no_room or self._no_room
            self._meet(trouble or no_room, is_full=trouble is None)
        except StorageFull as error:
            self._meet(str(error), is_full=True)
        except OSError as error:
            self._meet(_derived(error), is_full=is_full(error))

    def _meet(self, trouble: str | None, *, is_full: bool) -> None:
        """Remember what went wrong in a round. None means that nothing did."""
        self._full_at = self._journal.spares.made if is_full else None
        self._trouble = trouble

    def _fire_due(self) -> None:
        self._delays.fire_due()
        self._schedules.fire_due()

    def _merge_due_files(self) -> None:
        self._due_files.merge(all_of_them=True)

    def _save(self) -> str | None:
        """Write indexes, relocations and a checkpoint. Return what went wrong, or None."""
        self._write_indexes()
        trouble = self._relocate()
        self._due_files.merge()
        if self._checkpoint_due():
            self._checkpoint(clean=False)
        return trouble

    def _if_there_is_room(self, work: Callable[[], str | None]) -> str | None:
        """Call `work`, and return what went wrong, or None. A full disk is only noted: retention
        may make room.
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
        """Relocate the undecided transactions that lie too far back. Return what is wrong if one
        cannot be read.
        """
        try:
            while self._manager.relocate_oldest():
                pass
        # Only reading records can raise these errors.
        except (Damaged, NewerFormat, OSError) as error:
            return f"an undecided transaction keeps its segment, and cannot be read: {error}"
        return None

    def attempt(self) -> bool:
        """Run a round at the end of a call that has succeeded. Problems of chores are not raised.

        Return False if the engine has stopped; the next call raises that.
        """
        if self.is_running_here():
            # A signal handler makes this call, inside of a round that goes on afterwards.
            return True
        try:
            self.round()
        except Nested:
            return True  # the call comes from a signal handler inside of another call
        except (EngineFailed, Closed):
            return False
        except BaseException as error:
            # An unforeseen error ends the engine: no engine is better than a wrong one.
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
            segment = self._journal.segment_of(index.base)
            assert segment is not None
            if self._journal.durable_to <= index.end:
                # An index on disk proves that the next segment is durable. So make this segment
                # durable first.
                self._commit_queue.flush()
            index.chain = segment.chain
            self._catalog.write(index)
            with self._commit_queue.lock, self._commit_queue.changing:
                self._catalog.add(index.base, index.chain)
                self._ledger.sealed.pop(0)
            self._marks.sealed(index.base, index.chain)

    def _make_spare(self) -> None:
        now = self._clock.monotonic()
        current = self._journal.current.base
        room = (now - self._last_roll) * ZEROED_BYTES_PER_SECOND_MAX
        fast = current > 0 and room < self._journal.current.capacity
        if current != self._writing:
            writes = sum(self._commit_queue.written)
            most = (writes - self._writes) * ZEROED_WRITE_BYTES_MAX
            self._writes_are_large = most < current - self._writing
            self._writing, self._last_roll, self._writes = current, now, writes
        self._journal.spares.make_ahead(zeros=not (fast or self._writes_are_large))

    # --- checkpoint -------------------------------------------------------------------------

    def _checkpoint_due(self) -> bool:
        applied = self._ledger.shown_to
        now = self._clock.monotonic()
        if applied != self._last_seen:
            self._last_seen, self._last_change = applied, now
        if applied >= self.pressing_from():
            return True
        idle = now - self._last_change >= self._options.checkpoint_idle_seconds
        return applied != self.checkpointer.upto and idle

    def pressing(self) -> bool:
        """Return whether a round is due although the engine is busy."""
        if self.timer_thread is not None and self.timer_thread.is_wanted:
            return True
        return self._ledger.shown_to >= self.pressing_from() or bool(self._ledger.sealed)

    def pressing_from(self) -> int:
        """Return the position from which on the next checkpoint is due."""
        return self.checkpointer.upto + self._options.checkpoint_bytes

    def pending(self) -> bool:
        """Return whether appends were written that are not synced yet."""
        return bool(self._journal.pending_bytes)

    def idle(self) -> bool:
        """Return whether no chore becomes due before the next append."""
        if self._journal.spares.lacks:
            return False  # another program may free room on the disk
        if self._broadcasts.has_unused():
            return False  # unused groups of broadcasts are kept for a moment
        if self._left_overs.may_come():
            return False
        if self._options.retain_seconds is not None and len(self._journal.segments) > 1:
            return False  # retention becomes due by time alone
        retention = self.retention
        looks = self._journal.position >= retention.looks_from and not retention.looked
        if looks and retention.due():
            return False  # a limit was exceeded already when the engine was opened
        applied = self._ledger.shown_to == self.checkpointer.upto
        return applied and not self._ledger.sealed and not self._journal.pending_bytes

    def next_death(self) -> float:
        """Return when the next member of a group may count as dead, by the monotonic clock."""
        return self._groups.next_death()

    def checkpoint(self) -> None:
        """Write a checkpoint now."""
        with self._running:
            self._check()
            self._checkpoint(clean=False)

    def end(self, *, clean: bool) -> None:
        """Wait for the running chore and, with `clean`, write the last checkpoint.

        `clean` says that the engine is drained, so that nothing can be appended any more.
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
        """Drop segments that are over the limits. Return what went wrong, or None."""
        try:
            if self.retention.due():
                while (dropped := self._drop_oldest()) == AT_ONCE_MAX:
                    pass  # there may be more segments to drop
                if dropped and self.retention.due():
                    # After the checkpoint of the first pass, more segments may be dropped. Try it
                    # only once: each pass writes a STATE, which takes room again, so it might
                    # never end.
                    self._drop_oldest()
        except (Damaged, NewerFormat, Unreadable) as error:
            return f"retention cannot go on: {error}"
        except TooLarge as error:
            return f"retention cannot go on, as what it carries over fits no segment: {error}"
        return None

    def _drop_oldest(self) -> int:
        """Drop the segments that may go now. Return how many there were."""
        retention = self.retention
        if (
            not retention.choose(self.checkpointer.scan_from)
            and retention.waits_for_checkpoint
            and self._ledger.shown_to > self.checkpointer.upto
        ):
            self._checkpoint_if_there_is_room()
        segments, locks = retention.lock_out_exports(retention.choose(self.checkpointer.scan_from))
        try:
            if segments:
                # Write this checkpoint once only: without room for it, each round would come to
                # this line.
                if self._ledger.floor < segments[-1].limit:
                    retention.carry_dead_letters(segments)
                    if self._delays.carry_forward(segments[-1].limit):
                        self._if_there_is_room(self._merge_due_files)
                    if not retention.carry_over(segments):
                        return 0
                # Without this checkpoint, recovery begins at an older checkpoint, whose position is
                # above these segments, and then reads the STATE. After a crash at this point it
                # does so, too.
                self._checkpoint_if_there_is_room()
                retention.forget(segments)
                retention.remove()
        finally:
            for lock in locks:
                lock.close()
        return len(segments)


def _derived(error: OSError) -> str:
    """Return the text for a file that could not be written. Nothing is lost: such a file is checked
    when it is read, and built again if it is not sound.
    """
    return f"a file that can be built again: {error}; trying again later"
