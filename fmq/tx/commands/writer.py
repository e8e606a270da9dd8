"""Planning appends under the lock: new topics, offsets, positions and segments.

Whatever can be refused is refused before the first change in memory. After that only a defect or
the disk can fail.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from struct import error as StructError
from threading import RLock, get_ident
from typing import TypeVar

from fmq.arguments.names import no_queue
from fmq.arguments.options import Options
from fmq.basics.clock import Clock
from fmq.errors import IllegalRecord
from fmq.store.bytes.kinds import MESSAGE, REF_MESSAGE, TX_MESSAGE, Decided, Prepare, Run, TopicMade
from fmq.store.journal.commit_queue import CommitQueue
from fmq.store.journal.journal import Append, Journal
from fmq.tx.ledger.apply import apply
from fmq.tx.ledger.ledger import Ledger, Queue, Topic
from fmq.tx.ledger.state import IllegalStep

T = TypeVar("T")
A = TypeVar("A")
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
        self.last_us = ledger.last_us  # of the times that were given to records
        self.moves = 0  # of groups: then deliveries that transactions hold may be lost
        self._changing = commit_queue.changing
        self._spares, self._time_us = journal.spares, clock.time_us
        self.on_sealed: Callable[[object], None] = lambda _: None  # a segment is full, and durable
        # Functions that release what a dropped transaction or consumer held. The garbage collector
        # may run inside of any call, with any lock held. So a finalizer only appends here, and the
        # next call that consumes calls them, under the lock.
        self.dropped: deque[Callable[[], object]] = deque()

    def makes_durable(self, sync: bool | None) -> bool:
        """Return whether a call that was given this `sync` is durable on its return."""
        return self.commit_queue.waits(sync) and (sync is True or self.options.sync == "always")

    def now_us(self) -> int:
        """Return the time for a record, never before that of an earlier record. Under the lock."""
        time_us = self._time_us  # called as a function: CPython 3.11 is slow to look it up
        now = time_us()
        if now < self.last_us:
            now = self.last_us
        self.last_us = now
        return now

    def change(self, change: Callable[[], T]) -> T:
        """Call `change` under the lock."""
        queue = self.commit_queue
        queue.refuse_nested(get_ident())
        with self._lock, queue.changing:
            self.release_dropped()
            return change()

    def release_dropped(self) -> None:
        """Release what dropped transactions and consumers hold. Under the lock."""
        while self.dropped:
            self.dropped.popleft()()

    # --- the steps of a plan, under the lock ----------------------------------------------------

    def send(
        self, append: Append, *, ordinary: bool = True, stated: Prepare | Decided | None = None
    ) -> int:
        """Plan `append`: give it its position at the end of the journal, its time and its offsets,
        apply it, and make it pending. `stated` is the record in it that states a transaction. If it
        begins one, the position of the first record is its number.

        Records for new topics are put before its own records. Return the position of the first of
        its own. Raises TooLarge, StorageFull or IllegalRecord, and then nothing was changed. A
        record behind the first that no replay would take is a defect that ends the engine, before
        the write.
        """
        journal, records, now = self.journal, append.records, self.now_us()
        before = self._find_queues(append)
        if self._spares.needed or journal.position + append.size > journal.segments[-1].limit:
            self.make_room(append.size, ordinary=ordinary)
        first = journal.position + before
        if stated is not None:
            if type(stated) is Decided:
                stated.append_start = journal.position
            if not stated.tx:
                stated.prepared_us = now
                for record in records:
                    record.tx = first
        self._append(append, now)
        return first

    def _find_queues(self, append: Append) -> int:
        """Find the queue of each run of `append`, and the offset of each that is published.

        Put a TOPIC record before them for each topic that does not exist yet. Return the size of
        those.
        """
        topics = self.ledger.topics
        new: dict[str, Topic] = {}
        ends: dict[Queue, int] = {}  # after the records before
        for run in append.records:
            if type(run) is Run:
                try:
                    queue = run.target = topics[run.topic].queues[run.queue]
                except LookupError:
                    queue = self._new_queue(new, run)
                if run.kind in PUBLISHING:
                    run.offset = offset = ends.get(queue, queue.end)
                    ends[queue] = offset + run.count
        if not new:
            return 0
        made = Append([TopicMade(topic.name, len(topic.queues), 0) for topic in new.values()])
        append.size += made.size
        append.records = [*made.records, *append.records]
        return made.size

    def _new_queue(self, new: dict[str, Topic], run: Run) -> Queue:
        """Return the queue of `run` in a topic that does not exist yet, and note the topic in
        `new`.

        Raises BadName if the topic exists: it was deleted, and made again with fewer queues.
        """
        name, number = run.topic, run.queue
        if name in self.ledger.topics:
            raise no_queue(name, number, len(self.ledger.topics[name].queues))
        run.target = None  # until the topic is made
        if name not in new:
            new[name] = Topic(name, self.options.queues_of(name))
        # A caller may have chosen queues of a topic of this name that is deleted by now.
        self.ledger.grow(new[name], number + 1)
        return new[name].queues[number]

    def _append(self, append: Append, now: int) -> None:
        """Encode `append` with the time `now`, apply it, and make it pending."""
        journal, ledger, changing = self.journal, self.ledger, self._changing
        base = journal.segments[-1].base
        if base != ledger.index.base:
            ledger.enter_segment(base)
            ledger.shows.append((ledger.end, None, self.on_sealed, None))
        try:
            encoded = journal.encode(append, now)
            changing.changed = True  # an exception in the middle of a change ends the engine
            apply(ledger, append.records)
        except (IllegalStep, StructError, ArithmeticError, ValueError) as error:
            if isinstance(error, IllegalStep) and error.is_first:
                changing.changed = False
            if changing.changed:
                raise
            raise IllegalRecord(append.records[0].kind, str(error)) from error
        journal.append(append, encoded)

    def catch_up(self, position: int) -> None:
        """Wait until what is noted at `position` is shown. Without the lock.

        Raises EngineFailed if it could not be written.
        """
        ledger = self.ledger
        if position >= ledger.applied_upto:
            self.commit_queue.flush()
            assert position < ledger.applied_upto, "a flush shows all that was planned before it"

    def make_room(self, size: int, *, ordinary: bool, makes_room: bool = False) -> None:
        """Roll to the next segment if an append of `size` bytes does not fit.

        Raises TooLarge or StorageFull, and then nothing was changed. An ordinary append does not
        take the room that is set aside for decisions. The append of a retention `makes_room`: it
        may take the room that is set aside for it.
        """
        journal, spares = self.journal, self._spares
        if size > journal.append_bytes_max:
            journal.refuse(size)
        if ordinary and spares.needed and spares.count() < spares.needed:
            # A decision has taken a spare. The rest of that segment stays set aside for other
            # decisions until there is a new spare. Otherwise messages could fill it.
            spares.reserve(spares.needed)
        if not journal.fits(size):
            journal.roll(size, ordinary=ordinary, makes_room=makes_room)
