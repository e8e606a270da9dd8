"""Appends, planned under the lock: which topic comes into being, which offset, which segment.

What can be refused is refused before anything in memory is changed; what follows then cannot
fail for any reason but a defect or the disk.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Callable
from threading import RLock, get_ident
from typing import TypeVar

from fmq.clock import Clock
from fmq.options import Options
from fmq.store.commit_queue import CommitQueue
from fmq.store.content import text_bytes
from fmq.store.journal import Append, Journal, measure
from fmq.store.kinds import MESSAGE, REF_MESSAGE, TX_MESSAGE, Run, TopicMade
from fmq.tx.apply import Step
from fmq.tx.frontier import Frontier
from fmq.tx.ledger import Ledger
from fmq.tx.names import as_index, check_name, no_queue, no_text

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
        self._topics, self._spares, self._time_us = ledger.topics, journal.spares, clock.time_us
        self._turns: dict[str, int] = {}  # the queue of a topic that had the last message
        # What to call under the lock for transactions and consumers that were dropped without an
        # end. The garbage collector may find one inside of any call, whatever locks that has: so a
        # finalizer only appends here, and the next call that consumes takes it.
        self.dropped: deque[Callable[[], object]] = deque()

    def makes_durable(self, sync: bool | None) -> bool:
        """Return whether what a call wrote that was given this `sync` was durable on its return."""
        return self.commit_queue.waits(sync) and (sync is True or self.options.sync == "always")

    def now_us(self) -> int:
        """The time for a record planned now, never before an earlier one's. Under the lock."""
        time_us = self._time_us  # called as a function: CPython 3.11 is slow to look it up
        now = time_us()
        if now < self.frontier.last_us:
            now = self.frontier.last_us
        self.frontier.last_us = now
        return now

    def name_of(self, topic: str) -> str:
        """The topic's name as the ledger has it, or is to have it; TypeError or BadName."""
        try:
            known = self.ledger.topics.get(topic)
        except TypeError:
            raise no_text("topic", topic) from None
        return check_name("topic", topic) if known is None else known.name

    def choose_queue(self, topic: str, key: str | None, queue: int | None) -> int:
        """The queue for a message: the one asked for, the key's, or the next in turn."""
        try:
            known = self.ledger.topics.get(topic)
        except TypeError:
            raise no_text("topic", topic) from None
        if known is None:
            check_name("topic", topic)
        count = self.options.queues_of(topic) if known is None else len(known.queues)
        if queue is not None:
            queue = as_index("queue", queue)
            if not 0 <= queue < count:
                raise no_queue(topic, queue, count)
            return queue
        if count == 1:
            return 0
        if key is not None:
            return zlib.crc32(text_bytes("key", key)) % count
        if known is None and not self.frontier.has_topic(topic):
            return 0
        self._turns[topic] = turn = (self._turns.get(topic, 0) + 1) % count
        return turn

    def check_target(self, topic: str, queue: int | None) -> None:
        """Raise what `choose_queue` would, and take no turn: for who sends nothing there."""
        if queue is not None:
            self.choose_queue(topic, None, queue)
        else:
            check_name("topic", topic)

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
        """Give `append` its place at the end of the journal, its time and its offsets; return the
        position of its first record, before which there may be TOPIC records for topics that
        nobody has heard of. Raises TooLarge or StorageFull, and nothing was changed.
        """
        journal, frontier = self.journal, self.frontier
        now, records = self.now_us(), append.records
        made: list[TopicMade] = []
        for record in records:
            if type(record) is Run and not frontier.has_topic(record.topic):
                made = self._topics_of(append)
                break
        if self._spares.needed or journal.position + append.size > journal.segments[-1].limit:
            self.make_room(append.size, ordinary=ordinary)
        frontier.add_topics(made)
        append.position = at = journal.position
        for record in append.records:
            record.position, record.time_us = at, now
            if record.kind in PUBLISHING:
                frontier.give_offsets(record)
            at += (record.size + 7) & ~7
        return records[0].position  # type: ignore[no-any-return]

    def _topics_of(self, append: Append) -> list[TopicMade]:
        """Let those of its topics that are not there come into being with `append`."""
        names = dict.fromkeys(run.topic for run in append.records if type(run) is Run)
        new = [
            TopicMade(name, self.options.queues_of(name), 0)
            for name in names
            if not self.frontier.has_topic(name)
        ]
        append.size += measure(new)
        append.records = [*new, *append.records]
        return new

    def append(self, append: Append) -> None:
        """Let `append`, which was placed, join what is pending. Raises IllegalStep if a replay
        would refuse it: a defect of ours, which ends the engine before the write.
        """
        append.step = Step(self.ledger, append.records)
        self.journal.append(append)

    def send(self, append: Append) -> None:
        """Plan an append that belongs to no transaction."""
        self.place(append)
        self.journal.append(append)

    def make_room(self, size: int, *, ordinary: bool, makes_room: bool = False) -> None:
        """See that an append of `size` bytes fits; TooLarge or StorageFull, and nothing changed.

        An ordinary one leaves the room of decisions alone, and what retention begins with, unless
        it is that: then it `makes_room`.
        """
        journal, spares = self.journal, self._spares
        if size > journal.append_bytes_max:
            journal.refuse(size)
        if ordinary and spares.needed and spares.count() < spares.needed:
            # A decision has taken one. What it left of it is set aside for the other decisions
            # until there is a spare again: else messages could fill it and a full disk refuse them.
            spares.reserve(spares.needed)
        if not journal.fits(size):
            journal.roll(size, ordinary=ordinary, makes_room=makes_room)
