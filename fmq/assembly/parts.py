"""The parts of an engine, put together from what recovery found.

One lock, `Parts.lock`, guards everything in memory.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from zlib import crc32

from fmq.arguments.options import Options
from fmq.arguments.stored_options import (
    AT_ONCE,
    Setting,
    new_by,
    others_of,
    overwrite,
    settings,
    told,
    with_stored,
)
from fmq.basics.clock import Clock, as_datetime, ticks_of
from fmq.basics.counts import Counts, GroupCounts, GroupTally, Times
from fmq.basics.results import ClientInfo
from fmq.chores.checkpointer import Checkpointer, no_checkpoint
from fmq.chores.due_files import DueFiles
from fmq.chores.runner import Chores
from fmq.chores.thread import ChoreThread
from fmq.consume.administration.broadcast import Broadcasts
from fmq.consume.administration.change_plans import Changes
from fmq.consume.administration.evictions import Evictions
from fmq.consume.administration.group_looks import GroupLooks
from fmq.consume.administration.stored_changes import configure
from fmq.consume.administration.tickets import Tickets
from fmq.consume.groups.burial import Burying
from fmq.consume.groups.groups import Groups
from fmq.erasure.eraser import Eraser
from fmq.errors import Nested, StorageError, StorageFull
from fmq.feedback.open_questions import OpenQuestions
from fmq.feedback.service import Feedback
from fmq.machine.disk import Directory, Page, home_of
from fmq.recovery.layout import FAILED
from fmq.recovery.recover import Recovered
from fmq.recovery.replay import rebuild_index
from fmq.steps.call_steps import Apart, Durable, Steps, nothing
from fmq.store.bytes.encoding import measured
from fmq.store.bytes.record import aligned
from fmq.store.index.catalog import Catalog
from fmq.store.index.index import SegmentIndex
from fmq.store.journal.commit_queue import CommitQueue
from fmq.store.journal.durable_page import begin_page, no_page
from fmq.store.journal.files import Files
from fmq.store.journal.journal import Journal
from fmq.store.journal.section import OwnedLock
from fmq.store.journal.segment import HEADER_BYTES, segment_name
from fmq.store.journal.spares import Spares
from fmq.store.reading.key_marks import KeyMarks
from fmq.store.reading.reader import Reader
from fmq.tx.commands.delays import END_BYTES, Delays
from fmq.tx.commands.limits import DECISION_BYTES_MAX
from fmq.tx.commands.manager import TransactionManager
from fmq.tx.commands.router import Router
from fmq.tx.commands.sender import Sender
from fmq.tx.commands.writer import Writer
from fmq.tx.ledger.transitions import show
from fmq.tx.looks.find import Finder
from fmq.tx.looks.journal_tail import JournalTail
from fmq.tx.looks.messages import Messages
from fmq.tx.looks.outcomes import Outcomes
from fmq.tx.schedules.schedules import Schedules

logger = logging.getLogger("fmq.engine")


def _segment_bytes(found: Recovered, options: Options) -> int:
    """Return the size of new segments: as the options say, or larger if undecided transactions need
    it.

    A transaction prepared with larger segments must still fit when it is relocated or committed.
    So must a message that waits, when it is due. No option may refuse a decision.
    """
    undecided = found.ledger.undecided.values()
    holding = [
        segment.capacity
        for segment in found.segments
        if any(segment.base <= entry.start < segment.limit for entry in undecided)
    ]
    deciding = [
        aligned(HEADER_BYTES + measured([entry.prepare, *entry.runs]) + DECISION_BYTES_MAX)
        for entry in undecided
    ]
    publishing = aligned(HEADER_BYTES + found.ledger.timers.largest + END_BYTES)
    return max([options.segment_bytes, publishing, *holding, *deciding])


class PartsListener:
    """Passes each event of the ledger to the part that acts on it."""

    __slots__ = ("acked", "changed", "configured", "decided", "freed", "undecided")

    def __init__(
        self, groups: Groups, questions: OpenQuestions, configured: Callable[[], None]
    ) -> None:
        self.acked = groups.holds.end_holds
        self.freed = groups.holds.give_back
        self.changed = groups.changed
        self.undecided = questions.add
        self.decided = questions.remove
        self.configured = configured


class Parts:
    """All parts of one engine. Here durable appends become visible."""

    def __init__(
        self,
        directory: Directory,
        found: Recovered,
        options: Options,
        clock: Clock,
        drawn: bytes,
        check: Callable[[], None],
        check_readable: Callable[[], None],
        after: Callable[[], None],
    ) -> None:
        """`drawn` are random bytes for ids. `check` raises if the engine is closed or has failed,
        `check_readable` if nothing can be read. `after` is called at the end of a call that wrote.
        """
        self.directory = directory
        # The options of the opening. `options` has the values that count: stored ones come first.
        self._opened_with = options
        self.options = options = with_stored(options, found.ledger.options)
        self._store = found.store
        self.lock = lock = threading.RLock()
        self.ledger = ledger = found.ledger
        segment_bytes = _segment_bytes(found, options)
        spares = Spares(directory, options.first_segment_bytes, segment_bytes)
        files = Files(directory)
        try:
            spares.adopt(directory.names(), any_size=bool(ledger.undecided))
            self.journal = journal = Journal(
                directory, found.store, found.segments, spares, files, segment_bytes, crc32(drawn)
            )
        except BaseException:
            spares.close()
            raise
        modes = {"synced": options.sync != "never", "waits": options.sync != "interval"}
        self.commit_queue = queue = CommitQueue(
            lock, journal, self._show, **modes, ticks=ticks_of(clock)
        )
        if (home := home_of(directory)) is not None:
            queue.writing_apart = home.writing
        self.writer = writer = Writer(lock, journal, queue, ledger, clock, options)
        router = Router(ledger.topics, options.queues_of, ledger.topics.__contains__)
        self.router, self.sender = router, Sender(router, options)
        self.catalog = catalog = Catalog(directory, found.store, self._rebuild)
        self._fill_catalog()
        reader = Reader(files, journal.seed, options.read_ahead_bytes)
        self._outcomes = outcomes = Outcomes(lock, journal, ledger, catalog, reader, clock, options)
        outcomes.catch_up = writer.catch_up
        store = found.store.hex()
        what = outcomes, catalog, store, drawn, check_readable, after
        self.manager = TransactionManager(writer, router, *what)
        self.messages = Messages(lock, ledger, catalog, reader, clock)
        self.messages.hurry, self.messages.catch_up = queue.hurry, writer.catch_up
        self.marks = marks = KeyMarks(directory, found.store, catalog, reader, writes=True)
        self.finder = Finder(self.messages, catalog, reader, marks)
        self.tail = JournalTail(self.messages, catalog, reader)
        self.eraser = Eraser(
            directory, found.store, writer, self.messages, files, reader, self.marks
        )
        self.burying = Burying(writer, self.messages)
        self.groups = groups = Groups(ledger, options.member_timeout_seconds, clock)
        self.schedules = Schedules(writer, router)
        self.changes = changes = Changes(
            writer, self.messages, self.schedules, groups, self.burying
        )
        self.group_looks = GroupLooks(changes, groups)
        self.evictions = Evictions(writer, groups, self.messages)
        self.tickets = Tickets(changes)
        self.broadcasts = broadcasts = Broadcasts(changes, groups.holds, options.reclaim_seconds)
        decisions = self.manager.decisions
        self.questions = questions = OpenQuestions(
            self.messages, decisions, options, store, drawn, check, check_readable
        )
        self.feedback = Feedback(questions, decisions, options, store, after)
        ledger.listener = PartsListener(self.groups, questions, self._configured)
        queue.on_failure = self._has_failed
        self.delays = delays = Delays(writer, files)
        due_files = DueFiles(directory, found.store, ledger.timers, queue)
        checkpointer = Checkpointer(directory, writer, found, due_files)
        own = changes, self.group_looks, checkpointer, self.burying, delays, due_files
        rest = marks, broadcasts, self.schedules
        self.chores = Chores(directory, writer, self.manager, catalog, *own, *rest)
        # Lists the clients of this process, while it serves some.
        self.clients: Callable[[], list[ClientInfo]] = list
        # Called once when the engine has failed, under its lock, whoever has made the call that
        # has met the error.
        self.on_failed: Callable[[], None] = lambda: None
        # None if the engine was opened with background=False.
        self.chore_thread: ChoreThread | None = None
        # Called when another timer becomes the next one.
        self.on_sooner: Callable[[], None] = lambda: None
        writer.on_sealed = self._segment_is_full
        groups.rooms.on_sooner = self._wake_chores
        ledger.all_is_shown()
        self._opened_at = journal.written_to
        self._opened_us, self._opened_monotonic = clock.time_us(), clock.monotonic()
        self._page: Page | None = None
        with suppress(OSError):  # without the page, attempts go to the journal
            writer.attempts.begin(directory, found.counted, journal.position)
        with suppress(OSError):  # readers can do without the page
            self._page = begin_page(directory, found.store, drawn, journal.durable_to)
            journal.page = self._page.words

    def settings(self) -> list[Setting]:
        """Return all options."""
        self.writer.catch_up(self.ledger.changed_at)
        with self.lock:
            return settings(self._opened_with, self.options, self.ledger.options)

    def store_options(self) -> None:
        """Store the options that the opening names and for which the directory has no value. Log
        the options for which the directory has another value.
        """
        others = others_of(self._opened_with, self.ledger.options)
        if others:
            logger.warning("%s", told(self.directory.path, others))
        if new := new_by(self._opened_with, self.ledger.options):
            try:
                self.changes.write(configure, new, only_new=True)
            except StorageFull as error:
                logger.warning("the directory does not store options for now: %s", error)

    def _configured(self) -> None:
        """Let all parts use the options that take effect without a new opening. The caller holds
        the engine's lock.
        """
        counts = with_stored(self._opened_with, self.ledger.options)
        overwrite(self.options, {name: getattr(counts, name) for name in AT_ONCE})
        # The objects below keep options in fields of their own.
        self.sender.take_over(counts)
        self.manager.limits.take_over(counts)
        self._outcomes.take_over(counts)
        self.groups.rooms.take_over(counts)
        self.chores.retention.plan_looks()

    def _fill_catalog(self) -> None:
        """Give the catalog the sealed segments, except for those whose indexes are in memory."""
        ledger = self.ledger
        in_memory = {index.base for index in ledger.sealed}
        for segment in self.journal.segments:
            if segment.base < ledger.index.base and segment.base not in in_memory:
                self.catalog.add(segment.base, segment.chain)

    def counted(self, sent: dict[str, int]) -> Counts:
        """Return the counts since the engine was opened. `sent` is how many messages were sent to
        each topic. The caller holds the engine's lock.
        """
        ledger, questions = self.ledger, self.questions
        return Counts(
            as_datetime(self._opened_us),
            self.writer.clock.monotonic() - self._opened_monotonic,
            sent,
            *(ledger.commits, ledger.rollbacks, questions.asked, questions.answered),
            Times(tuple(self.commit_queue.written)),
            {
                group: self._counted_of(group, acked)
                for group, acked in sorted(ledger.acked_by().items())
            },
        )

    def _counted_of(self, group: str, acked: dict[str, int]) -> GroupCounts:
        tally = self.groups.tallies.get(group) or GroupTally()
        return GroupCounts(
            *(tally.attempts, tally.retries, tally.failures),
            acked,
            self.ledger.rejected_by(group),
            Times(tuple(tally.handed_over)),
            Times(tuple(tally.handled)),
            dict(self.groups.rooms.out.get(group, {})),
        )

    def list_clients(self) -> list[ClientInfo]:
        """Return the clients that are connected to this process."""
        return self.clients()

    def _rebuild(self, base: int) -> SegmentIndex:
        """Return the index of a sealed segment whose index file is missing or not sound."""
        segment = self.journal.segment_of(base)
        if segment is None:
            raise FileNotFoundError(segment_name(base))
        return rebuild_index(self.directory, segment, self._store)

    def _show(self, upto: int) -> None:
        """Make all appends below the durable position `upto` visible at one instant. The caller
        holds the engine's lock.
        """
        ledger, thread = self.ledger, self.chore_thread
        show(ledger, upto)
        if ledger.arrived:
            self.messages.wake()
        if ledger.timers.sooner:
            ledger.timers.sooner = False
            self.on_sooner()
        if thread is not None and upto >= thread.wake_at:
            thread.wake()

    def _segment_is_full(self, _: object) -> None:
        self._wake_chores()  # the chores write the index of the full segment

    def _wake_chores(self) -> None:
        if self.chore_thread is not None:
            self.chore_thread.wake()

    def wake_all(self) -> None:
        """Wake all waiting calls, because the engine closes or has failed. The caller holds the
        engine's lock.
        """
        self.messages.wake_all()
        self.questions.wake_all()

    def _has_failed(self) -> None:
        """Wake all waiting calls, and note the failure for recovery. Called once. The caller holds
        the engine's lock.
        """
        self.wake_all()
        self.on_failed()
        with suppress(OSError):
            # Recovery may not be able to tell which write failed.
            self.directory.create(FAILED).close()

    def syncing(self) -> Steps[None]:
        """Make every planned append durable, in any sync mode."""
        yield Durable(nothing, None, True)

    def checkpointing(self) -> Steps[None]:
        """Write a checkpoint, from which recovery can start."""
        self.refuse_nested()
        yield from self.syncing()
        yield Apart(self._checkpoint)

    def _checkpoint(self) -> None:
        try:
            self.chores.checkpoint()
        except StorageError:
            raise
        except OSError as error:
            raise no_checkpoint(self.directory.path, error) from error

    def check_whole(self) -> None:
        """Raise EngineFailed if the engine failed while it published: perhaps only a part is
        visible.

        With or without the lock.
        """
        # This position is final: a failed engine writes nothing more.
        written = self.journal.written_to
        if self.commit_queue.broken() and written > max(self._opened_at, self.ledger.shown_to):
            raise self.commit_queue.failed_error()

    def refuse_nested(self) -> None:
        """Raise Nested if a signal handler makes this call inside of another call of its thread."""
        self.commit_queue.refuse_nested(threading.get_ident())
        if self.chores.is_running_here():
            raise Nested

    def locks(self) -> list[threading.Lock | OwnedLock]:
        """Return the locks besides the engine's lock that a thread may hold."""
        return [self.journal.spares.lock, self.journal.files.lock, self.catalog.lock]

    def close(self) -> None:
        """Close all files."""
        self.journal.page = no_page()
        if self._page is not None:
            # Without a last checkpoint only the page says what readers have been shown.
            self._page.close(keep=self.chores.checkpointer.upto < self.ledger.shown_to)
        self.writer.attempts.close(keep=self.commit_queue.broken())
        self.ledger.timers.close()
        self.journal.close()
