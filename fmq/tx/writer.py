"""Planning appends under the lock: new topics, offsets, positions and segments.

Whatever can be refused is refused before the first change in memory. After that only a defect or
the disk can fail.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import RLock, get_ident
from typing import Any, TypeVar

from fmq.clock import Clock
from fmq.options import Options
from fmq.store.commit_queue import CommitQueue
from fmq.store.journal import Append, Journal, measure
from fmq.store.kinds import MESSAGE, REF_MESSAGE, TX_MESSAGE, Run, TopicMade
from fmq.tx.apply import Step
from fmq.tx.frontier import Frontier
from fmq.tx.ledger import Ledger
from fmq.tx.names import no_queue

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
        self.frontier = Frontier(ledger)
        self.moves = 0  # of groups: then deliveries that transactions hold may be lost
        self._changing = commit_queue.changing
        self._spares, self._time_us = journal.spares, clock.time_us
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
        if now < self.frontier.last_us:
            now = self.frontier.last_us
        self.frontier.last_us = now
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

    def place(self, append: Append, *, ordinary: bool = True) -> int:
        """Give `append` its position at the end of the journal, its time and its offsets.

        Records for new topics are put before its own records. Return the position of the first of
        its own records. Raises TooLarge or StorageFull, and then nothing was changed.
        """
        journal, frontier = self.journal, self.frontier
        now, records = self.now_us(), append.records  # its own, without those of new topics
        made: list[TopicMade] = []
        for record in records:
            if type(record) is Run and not frontier.has_topic(record.topic):
                made = self._topics_of(append)
                break
        if frontier.has_deleted:
            self._check_queues(records)
        if self._spares.needed or journal.position + append.size > journal.segments[-1].limit:
            self.make_room(append.size, ordinary=ordinary)
        self._changing.changed = True  # from here on an exception is a defect, and no refusal
        if made:
            frontier.add_topics(made)
        append.position = at = journal.position
        for record in append.records:
            record.position, record.time_us = at, now
            if record.kind in PUBLISHING:
                frontier.give_offsets(record)
            at += (record.size + 7) & ~7
        return records[0].position  # type: ignore[no-any-return]

    def _topics_of(self, append: Append) -> list[TopicMade]:
        """Put a TOPIC record into `append` for each of its topics that does not exist yet."""
        names = dict.fromkeys(run.topic for run in append.records if type(run) is Run)
        # A caller may have chosen a queue of a topic of this name that is deleted by now.
        least = {run.topic: run.queue + 1 for run in append.records if type(run) is Run}
        new = [
            TopicMade(name, max(self.options.queues_of(name), least[name]), 0)
            for name in names
            if not self.frontier.has_topic(name)
        ]
        append.size += measure(new)
        append.records = [*new, *append.records]
        return new

    def _check_queues(self, records: list[Any]) -> None:
        """Raise BadName for a queue of a topic that was deleted, and made again with fewer."""
        for run in records:
            if type(run) is Run:
                count = self.frontier.queues_of(run.topic)
                if count and run.queue >= count:
                    raise no_queue(run.topic, run.queue, count)

    def append(self, append: Append) -> None:
        """Make a placed `append` pending.

        Raises IllegalStep if a replay would refuse it. That is a defect of fmq, and the engine
        fails before the write.
        """
        append.step = Step(self.ledger, append.records)
        self.journal.append(append)

    def send(self, append: Append) -> None:
        """Plan an append that belongs to no transaction."""
        self.place(append)
        self.journal.append(append)

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
