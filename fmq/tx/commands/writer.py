"""Planning appends under the engine's lock: new topics, offsets, positions and segments.

Whatever can be refused is refused before the first change in memory. After that only a defect or
the disk can fail.
"""

from __future__ import annotations

from collections import ChainMap, deque
from collections.abc import Callable, Mapping
from struct import error as StructError
from threading import RLock, get_ident
from typing import TypeVar

from fmq.arguments.names import no_queue
from fmq.arguments.options import Options
from fmq.basics.clock import Clock
from fmq.errors import IllegalRecord
from fmq.store.bytes.encoding import encode_all, measured
from fmq.store.bytes.kinds import (
    MESSAGE,
    REF_MESSAGE,
    TX_MESSAGE,
    Append,
    Decided,
    Prepare,
    Run,
    TopicMade,
    Tried,
    TriedRange,
)
from fmq.store.bytes.record import FIRST, LAST
from fmq.store.journal.attempt_page import AttemptPage
from fmq.store.journal.commit_queue import CommitQueue
from fmq.store.journal.journal import Journal
from fmq.tx.ledger.apply import Step, apply
from fmq.tx.ledger.attempts import AttemptMap
from fmq.tx.ledger.ledger import Ledger
from fmq.tx.ledger.queues import Queue, Topic
from fmq.tx.ledger.state import IllegalStep
from fmq.tx.ledger.transitions import tries_applied

T = TypeVar("T")
A = TypeVar("A")
NOTHING = AttemptMap()
# What applying a record may raise. Recovery would also refuse a record that raises one of these.
DEFECTS = IllegalStep, StructError, ArithmeticError, ValueError
PUBLISHING = frozenset((MESSAGE, REF_MESSAGE, TX_MESSAGE))


class Writer:
    """Plans appends for one engine."""

    def __init__(
        self,
        lock: RLock,
        journal: Journal,
        commit_queue: CommitQueue,
        ledger: Ledger,
        clock: Clock,
        options: Options,
    ) -> None:
        self._lock = lock
        self.journal = journal
        self.commit_queue = commit_queue
        self.ledger = ledger
        self.clock = clock
        self.options = options
        self.attempts = AttemptPage(journal.seed)
        # Seeks and deletes of groups so far. After one, a transaction checks its deliveries again.
        self.moves = 0
        # No record gets an earlier time than this one, at which a timer or a schedule was due. So
        # nothing is published with a time before its due time, even if the clock is set back.
        self.not_before_us = 0
        self._changing = commit_queue.changing
        self._spares, self._time_us = journal.spares, clock.time_us
        # Called when a segment is sealed.
        self.on_sealed: Callable[[object], None] = lambda _: None
        # Functions that release what a dropped transaction or consumer held. The garbage collector
        # may run a finalizer inside of any call, with any lock held. So a finalizer only appends
        # its function here. The next call that consumes runs the functions, under the lock.
        self.dropped: deque[Callable[[], object]] = deque()

    def makes_durable(self, sync: bool | None) -> bool:
        """Return whether a call that was given this `sync` is durable on its return."""
        return self.commit_queue.waits(sync) and (sync is True or self.options.sync == "always")

    def now_us(self) -> int:
        """Return the time for a record, never before that of an earlier record. The caller holds
        the engine's lock.
        """
        # Call it as a plain function: CPython 3.11 is slow at `self._time_us()`.
        time_us = self._time_us
        return max(time_us(), self.ledger.last_us, self.not_before_us)

    def change(self, change: Callable[[], T]) -> T:
        """Call `change` under the lock."""
        queue = self.commit_queue
        queue.refuse_nested(get_ident())
        with self._lock, queue.changing:
            self.release_dropped()
            return change()

    def release_dropped(self) -> None:
        """Release what dropped transactions and consumers hold. The caller holds the
        engine's lock.
        """
        while self.dropped:
            self.dropped.popleft()()

    # --- the steps of a plan, under the lock ----------------------------------------------------

    def send(
        self,
        append: Append,
        *,
        ordinary: bool = True,
        stated: Prepare | Decided | None = None,
    ) -> None:
        """Plan `append`: give its records their position at the end of the journal, their time and
        their offsets, apply them, and make them pending. `stated` is the record in it that states a
        transaction. If it begins one, the position of the first record is its number.

        Records for new topics are written before its own. Raises TooLarge, StorageFull or
        IllegalRecord, and then nothing was changed. If only a later record of the append could not
        be replayed, that is a defect: the engine fails before the write.
        """
        journal, ledger, changing, now = self.journal, self.ledger, self._changing, self.now_us()
        begins = stated is not None and not stated.tx
        while True:
            start, segment = journal.position, journal.segments[-1]
            records, number = append, start
            try:
                self._give(append, ledger.topics)
            except LookupError:
                made = self._with_new_topics(append)
                records, number = [*made, *append], start + measured(made)
            step = None
            try:
                if stated is not None:
                    if begins:
                        stated.prepared_us = now
                        for record in append:
                            record.tx = number
                    append[0].position = number
                    if type(stated) is Decided:
                        stated.append_start = start
                    step = Step(ledger, append)
                records[0].flags |= FIRST
                records[-1].flags |= LAST
                buffers, chain, end = encode_all(
                    records, start, now, journal.durable_to, journal.seed, segment.chain
                )
            except DEFECTS as error:
                raise IllegalRecord(append[0].kind, str(error)) from error
            if not self._spares.needed and end <= segment.limit:
                break
            self.make_room(end - start, ordinary=ordinary)
            if journal.position == start:
                break
        if segment.base != ledger.index.base:
            ledger.enter_segment(segment.base)
            ledger.shows.append((ledger.end, self.on_sealed, None))
        changing.changed = True  # from here on an exception ends the engine
        try:
            apply(ledger, records, end, step)
        except IllegalStep as error:
            if not error.is_first:
                raise
            changing.changed = False
            raise IllegalRecord(append[0].kind, str(error)) from error
        journal.append(buffers, chain, end)

    def count(self, ranges: list[TriedRange], append: Append | None = None) -> None:
        """Plan `append`, if there is one, and count attempts. They survive a kill once `append` is
        written. Without an append they survive it at once, if the page has room.

        Raises what `send` raises, and then nothing was changed.
        """
        ledger, page = self.ledger, self.attempts
        if len(ranges) > page.room(self.journal):
            self.send([*(append or ()), Tried([*self._uncovered(), *ranges])])
            page.begin_anew(ledger.end)
            return
        if append:
            self.send(append)
        self._changing.changed = True
        time_us = self._time_us
        page.note(ranges, ledger.end, time_us())
        tries_applied(ledger, ranges)

    def write_attempts(self) -> None:
        """Plan a TRIED record of all attempts that still count and are not in the journal. The
        caller holds the engine's lock.
        """
        left = self._uncovered()
        if left:
            self.send([Tried(left)])
        self.attempts.begin_anew(self.ledger.end)

    def _uncovered(self) -> list[TriedRange]:
        """Return the attempts that only the page has and that still count."""
        tried_in = self.ledger.tried.get
        left: dict[TriedRange, None] = {}  # each range once, in order
        for group, topic, queue, first, end, *_ in self.attempts.noted:
            key = group, topic, queue
            for low, known in (tried_in(key) or NOTHING).within(first, end):
                left[TriedRange(*key, low, *known)] = None
        return [*left]

    def _give(self, append: Append, topics: Mapping[str, Topic]) -> None:
        """Give each run its queue, and, if it is published, its offset at the end of that queue.

        Raises LookupError if a queue is not in `topics`.
        """
        # The next offset of each queue, after the runs that were already looked at.
        ends: dict[Queue, int] = {}
        for record in append:
            if type(record) is Run:
                record.target = queue = topics[record.topic].queues[record.queue]
                if record.kind in PUBLISHING:
                    record.offset = offset = ends.get(queue, queue.end)
                    ends[queue] = offset + record.count

    def _with_new_topics(self, append: Append) -> list[TopicMade]:
        """Do what `_give` does if topics are new. Return the TOPIC records that make them.

        Raises BadName if a topic exists, but not the queue: the topic was deleted, and made again
        with fewer queues.
        """
        ledger = self.ledger
        new: dict[str, Topic] = {}
        runs = [record for record in append if type(record) is Run]
        for run in runs:
            name, number = run.topic, run.queue
            if name not in ledger.topics:
                if name not in new:
                    new[name] = Topic(name, self.options.queues_of(name))
                # The caller may have chosen the queue when a deleted topic of this name had more.
                ledger.grow(new[name], number + 1)
            elif number >= len(ledger.topics[name].queues):
                raise no_queue(name, number, len(ledger.topics[name].queues))
        self._give(append, ChainMap(new, ledger.topics))
        for run in runs:
            run.target = None  # the ledger finds the queue when the TOPIC records have made it
        return [TopicMade(topic.name, len(topic.queues), 0) for topic in new.values()]

    def catch_up(self, position: int) -> None:
        """Wait until the append at `position` is durable and shown. The caller does not hold the
        engine's lock.

        Raises EngineFailed if it could not be written.
        """
        ledger = self.ledger
        if position >= ledger.shown_to:
            self.commit_queue.flush()
            assert position < ledger.shown_to, "a flush shows all that was planned before it"

    def make_room(self, size: int, *, ordinary: bool, makes_room: bool = False) -> None:
        """Roll to the next segment if an append of `size` bytes does not fit.

        Raises TooLarge or StorageFull, and then nothing was changed. An ordinary append does not
        take the room that is set aside for decisions. Only the append of a retention (`makes_room`)
        may take the room that is set aside for retention.
        """
        journal, spares = self.journal, self._spares
        if size > journal.append_bytes_max:
            journal.refuse(size)
        if ordinary and spares.needed and spares.count() < spares.needed:
            # A decision has taken a spare. The rest of its segment stays set aside for other
            # decisions until a new spare is made. Otherwise messages could fill it.
            spares.make_up()
        if not journal.fits(size):
            journal.roll(size, ordinary=ordinary, makes_room=makes_room)
