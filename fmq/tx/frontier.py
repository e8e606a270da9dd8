"""What is planned and not yet durable, which later plans build on.

A plan gives out offsets, makes topics and ends transactions before the disk has any of it. The
ledger says only what is durable. So `plan` notes here what it has given out, and `settle` drops
the note once the ledger says the same. A replay needs none of it.

All of it is guarded by the engine's lock.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fmq.errors import MarkMoved, TooMany
from fmq.message import Mark
from fmq.store.extension import EXPIRED_ACKS
from fmq.store.id_table import id_keys_of
from fmq.store.index import LaneKey
from fmq.store.kinds import (
    PRE_MESSAGE,
    TIMER,
    Acks,
    Changed,
    ChangeKind,
    Decided,
    MarkChange,
    Marks,
    Prepare,
    Record,
    Run,
    TopicMade,
)
from fmq.tx.ledger import Entry, Ledger
from fmq.tx.marks import MARKS_MAX, NO_MARK, MarkBuffer

TIMERS_END = frozenset((ChangeKind.FIRE, ChangeKind.RECALL))


class Frontier:
    """The plans of one engine that run ahead of its ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.last_us = ledger.last_us
        self._offsets: dict[LaneKey, int] = {}  # the next one of each queue
        self._topics: dict[str, int] = {}  # the number of queues of each new one
        self._deleting: set[str] = set()  # topics
        self.has_deleted = False  # whether a topic was deleted since the engine was opened
        self._preparing: dict[str, Prepare] = {}  # by tx_id
        self._committing: set[str] = set()  # in one phase, under ids that users gave
        self._ending: dict[int, bool] = {}  # by tx: whether it is decided, or else relocated
        self._marks: dict[str, MarkChange] = {}  # of commits
        self.ids: dict[bytes, Run] = {}  # keys: the run that takes the id
        self.held_ids: dict[bytes, Prepare] = {}  # keys of what is being prepared
        self.changes = 0  # CHANGE records about groups and topics on their way
        self.ending_timers: set[int] = set()  # the numbers of those that are fired or recalled
        self.expired = 0  # ACKs of expired messages on their way

    # --- offsets and topics -----------------------------------------------------------------

    def next_offset(self, topic: str, queue: int) -> int:
        """Return the offset that the next message of the queue gets."""
        offset = self._offsets.get((topic, queue))
        if offset is None:
            known = self._ledger.queue(topic, queue)
            return 0 if known is None or topic in self._deleting else known.next
        return offset

    def give_offsets(self, run: Run) -> None:
        """Give `run` the next offsets of its queue."""
        queue = run.topic, run.queue
        offset = self._offsets.get(queue)
        run.offset = self.next_offset(*queue) if offset is None else offset
        self._offsets[queue] = run.offset + run.count

    def has_topic(self, name: str) -> bool:
        """Return whether the topic exists, or is about to be made."""
        known = name in self._ledger.topics and name not in self._deleting
        return known or name in self._topics

    def delete_topic(self, name: str) -> None:
        """Note that a topic is about to be deleted: its next message makes it anew."""
        self._deleting.add(name)
        self.has_deleted = True
        for lane in [lane for lane in self._offsets if lane[0] == name]:
            del self._offsets[lane]
        for key in [key for key, run in self.ids.items() if run.topic == name]:
            del self.ids[key]

    def is_deleting(self, name: str) -> bool:
        """Return whether the topic is about to be deleted."""
        return name in self._deleting

    def is_deleted(self, name: str, position: int) -> bool:
        """Return whether what was sent to the topic at `position` went with it, or is about to."""
        gone = name in self._deleting or not self.has_topic(name)
        return gone or self._ledger.deleted.get(name, 0) > position

    def queues_of(self, name: str) -> int:
        """Return how many queues the topic has, or is about to have; 0 if it is to be made."""
        if name in self._topics:
            return self._topics[name]
        return len(self._ledger.topics[name].queues) if self.has_topic(name) else 0

    def add_topics(self, made: Iterable[TopicMade]) -> None:
        """Note topics that an append makes."""
        for each in made:
            self._topics[each.name] = each.queues

    # --- transactions -----------------------------------------------------------------------

    def add_prepare(self, prepare: Prepare) -> None:
        """Note a transaction that is being prepared."""
        self._preparing[prepare.tx_id] = prepare

    def add_commit(self, tx_id: str) -> None:
        """Note a commit in one phase, under an id that a user gave."""
        self._committing.add(tx_id)

    def add_ending(self, entry: Entry, *, decides: bool) -> None:
        """Note that a decision of `entry`, or its relocation, is planned."""
        self._ending[entry.tx] = decides

    def has_id(self, tx_id: str) -> bool:
        """Return whether a transaction that was given this id is being written."""
        return tx_id in self._preparing or tx_id in self._committing

    def is_preparing(self, tx_id: str) -> bool:
        """Return whether a transaction with this id is being prepared."""
        return tx_id in self._preparing

    def preparing(self) -> Iterable[Prepare]:
        """Return the transactions that are being prepared."""
        return self._preparing.values()

    def is_ending(self, entry: Entry) -> bool:
        """Return whether a decision or a relocation of `entry` is planned."""
        return entry.tx in self._ending

    def is_deciding(self, entry: Entry) -> bool:
        """Return whether a decision of `entry` is planned."""
        return self._ending.get(entry.tx, False)

    def deciding(self) -> list[Prepare]:
        """Return the undecided transactions whose decision is planned."""
        undecided = self._ledger.undecided
        return [undecided[tx].prepare for tx, decides in self._ending.items() if decides]

    # --- message ids --------------------------------------------------------------------------

    def take_ids(self, runs: Iterable[Run]) -> None:
        """Note the ids that placed runs take."""
        for run in runs:
            self.ids.update(dict.fromkeys(id_keys_of(run).keys, run))

    def hold_ids(self, prepare: Prepare, runs: Iterable[Run]) -> None:
        """Note the ids that a transaction will hold when it is prepared."""
        for run in runs:
            self.held_ids.update(dict.fromkeys(id_keys_of(run).keys, prepare))

    def holder_of_id(self, key: bytes) -> str | None:
        """Return the tx_id of the undecided transaction that holds an id; None if there is none."""
        if (prepare := self.held_ids.get(key)) is not None:
            return prepare.tx_id
        tx = self._ledger.held_ids.get(key)
        # If its commit is planned, it is among those taken; else it is rolled back.
        if tx is None or self._ending.get(tx, False):
            return None
        return self._ledger.undecided[tx].prepare.tx_id

    # --- marks ------------------------------------------------------------------------------

    def check_marks(self, marks: MarkBuffer) -> None:
        """Raise MarkMoved if a mark is not where the caller expects it, or another transaction
        changes it; raise TooMany.
        """
        ledger, new = self._ledger, 0
        for change in marks.changes():
            name = change.name
            for prepare in self._preparing.values():
                if any(change.name == each.name for each in prepare.marks):
                    raise MarkMoved(name, undecided=prepare.tx_id)
            if name in ledger.held_marks:
                entry = ledger.undecided[ledger.held_marks[name]]
                if not self.is_deciding(entry):
                    raise MarkMoved(name, undecided=entry.prepare.tx_id)
            found = self._mark(name)
            expected = marks.expected.get(name)
            if expected is not None and expected != (NO_MARK if found is None else found.value):
                raise MarkMoved(name, expected, found)
            new += found is None
        if new and len(ledger.marks) + new > MARKS_MAX:
            raise TooMany("marks", len(ledger.marks) + new, MARKS_MAX, "fixed by fmq")

    def _mark(self, name: str) -> Mark | None:
        change = self._marks.get(name)
        if change is None:
            return self._ledger.marks.get(name)
        return None if change.data is None else Mark(change.value, change.data)

    def add_marks(self, changes: Iterable[MarkChange]) -> None:
        """Note the marks that a commit sets or removes."""
        for change in changes:
            self._marks[change.name] = change

    # --- when it is durable -----------------------------------------------------------------

    def settle(self, append: Sequence[Record]) -> None:
        """Drop what was noted of `append`, which the ledger has applied."""
        for record in append:
            if isinstance(record, Run):
                if record.extension:
                    self._settle_ids(record)
                if record.kind == PRE_MESSAGE or record.kind == TIMER:
                    continue  # it gets its offsets with the commit, or when it is due
                key = record.topic, record.queue
                if self._offsets.get(key) == record.offset + record.count:
                    del self._offsets[key]
            elif isinstance(record, Decided):
                self._ending.pop(record.tx, None)  # of what was prepared
                self._committing.discard(record.tx_id)  # in one phase
            elif isinstance(record, TopicMade):
                del self._topics[record.name]
            elif isinstance(record, Changed):
                if record.asked in TIMERS_END:
                    self.ending_timers.difference_update(place.offset for place in record.places)
                    continue
                self.changes -= 1
                if record.asked == ChangeKind.DELETE_TOPIC:
                    self._deleting.discard(record.topic)
            elif isinstance(record, Acks):
                self.expired -= record.extension == EXPIRED_ACKS
            elif isinstance(record, Marks):
                for change in record.changes:
                    if self._marks.get(change.name) is change:
                        del self._marks[change.name]
            elif isinstance(record, Prepare):
                if record.replaces:
                    del self._ending[record.tx]
                else:
                    del self._preparing[record.tx_id]

    def _settle_ids(self, run: Run) -> None:
        keys = id_keys_of(run).keys
        if run.kind == PRE_MESSAGE:
            for key in keys:
                self.held_ids.pop(key, None)
            return
        ids = self.ids
        for key in keys:
            if ids.get(key) is run:
                del ids[key]
