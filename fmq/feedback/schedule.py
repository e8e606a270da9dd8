"""The schedule: when which checker is asked about which undecided transaction.

For each producer there is a heap of its open questions, the soonest first. After the first call
that asks by topic there is also one for each producer and topic. So the next question is found at
once, however many there are.

A question whose time changes gets a new entry in its heaps, and the old ones become stale. Stale
entries are skipped, and once most of a heap is stale it is rebuilt. So no heap is much larger than
the number of its questions.

Most transactions are decided before a call asks. So a new one enters the heaps only at the next
call.

Times are those of `Clock.monotonic`, and the caller passes them in. Guarded by the engine's lock.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import cached_property
from heapq import heapify, heappop, heappush
from itertools import count
from random import Random
from typing import NamedTuple

from fmq.arguments.options import Options
from fmq.tx.ledger.ledger import Entry
from fmq.tx.ledger.state import State

# the longest pause between two questions, in units of check_backoff_seconds
BACKOFF_FACTOR_MAX = 10
BUSY_SECONDS = 1.0  # seconds to put a question off while its decision is being written
STALE_MAX = 64  # stale entries that are left in even a small heap

QuestionKey = tuple[str, str | None]
"""A producer with one topic, or with None for all topics."""


class OpenQuestion:
    """One undecided transaction, and the state of its question."""

    __slots__ = (
        *("answers", "due", "entry", "number", "parked", "token", "tries"),
        "was_given_back",
    )

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self.due = math.inf
        self.number = NO_NUMBER  # the number of this question's valid entry in each heap
        # The token of the Question that was handed out last. An answer "unknown" must show the
        # token.
        self.token = ""
        self.answers = 0  # number of answers "unknown" so far
        self.tries = 0  # how often a checker was asked without a decision, errors included
        self.parked = False
        # True if a checker died with the question, and no checker has answered it since.
        self.was_given_back = False

    @property
    def tx_id(self) -> str:
        return self.entry.prepare.tx_id

    @property
    def producer(self) -> str:
        return self.entry.prepare.producer

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(run.topic for run in self.entry.runs))

    @property
    def is_decided(self) -> bool:
        return self.entry.state is not State.UNDECIDED

    def is_leased(self, now: float) -> bool:
        """Return whether a checker has been asked and its lease has not ended."""
        return self.token != "" and self.due > now


NO_NUMBER = -1


class HeapEntry(NamedTuple):
    """One place of a question in a heap. When its due time changes, this entry becomes stale.

    Of those due at the same time, the lowest number comes first.
    """

    due: float
    number: int
    question: OpenQuestion

    @property
    def is_stale(self) -> bool:
        return self.question.number != self.number


class QuestionHeap:
    """The open questions under one key, the soonest first."""

    __slots__ = ("entries", "members")

    def __init__(self) -> None:
        # The numbers of the producer's transactions, parked ones included.
        self.members: set[int] = set()
        self.entries: list[HeapEntry] = []

    def add(self, entry: HeapEntry) -> None:
        self.drop_stale()
        heappush(self.entries, entry)

    def drop_stale(self) -> None:
        """Rebuild the heap if most entries are stale. Amortised O(1) for each entry."""
        if len(self.entries) > 2 * len(self.members) + STALE_MAX:
            current = [entry for entry in self.entries if not entry.is_stale]
            heapify(current)
            self.entries = current

    def soonest(self) -> HeapEntry | None:
        entries = self.entries
        while entries and entries[0].is_stale:
            heappop(entries)
        return entries[0] if entries else None


ScheduleSnapshot = tuple[list[OpenQuestion], list[tuple[Entry, float]]]


class Schedule:
    """All open questions of one engine, and when each is due."""

    def __init__(self, options: Options, seed: bytes, is_deciding: Callable[[Entry], bool]) -> None:
        """`is_deciding` returns whether a decision is being written."""
        self._options = options
        self._is_deciding = is_deciding
        self._seed = seed
        # Transactions that are not in the heaps yet, each with its due time, by number.
        self._new: dict[int, tuple[Entry, float]] = {}
        self._open: dict[int, OpenQuestion] = {}  # the open questions, by number of the transaction
        self._heaps: dict[QuestionKey, QuestionHeap] = {}  # the heap of each key that has questions
        self._by_topic = False  # True once there are heaps by topic
        self._numbers = count()
        # True if the last `take` met a question whose decision is being written.
        self.met_busy = False

    def add(self, entry: Entry, due: float) -> None:
        """Add a transaction that became undecided. Its question is due at `due`."""
        self._new[entry.tx] = entry, due

    def _index_new(self) -> None:
        """Put the questions that were added since the last call into the heaps."""
        for tx, (entry, due) in self._new.items():
            question = self._open[tx] = OpenQuestion(entry)
            for key in self.keys_of(question):
                self._heaps.setdefault(key, QuestionHeap()).members.add(tx)
            self._put_off(question, due)
        self._new.clear()

    def remove(self, tx: int) -> None:
        """Remove the question about the transaction `tx`, which was decided."""
        self._new.pop(tx, None)
        question = self._open.pop(tx, None)
        if question is None:
            return
        question.number, question.token = NO_NUMBER, ""
        for key in self.keys_of(question):
            heap = self._heaps[key]
            heap.members.discard(tx)
            if heap.members:
                heap.drop_stale()
            else:
                del self._heaps[key]

    # --- finding --------------------------------------------------------------------------------

    def keys_of(self, question: OpenQuestion) -> tuple[QuestionKey, ...]:
        """Return the keys of the heaps that contain `question`."""
        producer = question.producer
        if self._by_topic:
            return (producer, None), *((producer, topic) for topic in question.topics)
        return ((producer, None),)

    def find(self, tx: int) -> OpenQuestion | None:
        """Return the open question about the transaction `tx`, or None."""
        self._index_new()
        return self._open.get(tx)

    def snapshot(self) -> ScheduleSnapshot:
        """Return all questions, unsorted, for `in_order`. Only this part needs the lock."""
        return [*self._open.values()], [*self._new.values()]

    @staticmethod
    def in_order(snapshot: ScheduleSnapshot) -> list[OpenQuestion]:
        """Return all questions of `snapshot`, the oldest first. This needs no lock."""
        known, new = snapshot
        everything = {entry.tx: OpenQuestion(entry) for entry, _ in new}
        everything.update((question.entry.tx, question) for question in known)
        return [everything[tx] for tx in sorted(everything)]

    def oldest_first(self) -> list[OpenQuestion]:
        """Return all questions in the order of their transactions' numbers."""
        self._index_new()
        return [self._open[tx] for tx in sorted(self._open)]

    def next_due(self, keys: Iterable[QuestionKey]) -> float:
        """Return the time when the next question under any of `keys` is due."""
        entry = _soonest(self._heaps_of(keys))
        return math.inf if entry is None else entry.due

    # --- asking ---------------------------------------------------------------------------------

    def take(self, keys: Iterable[QuestionKey], limit: int, now: float) -> list[OpenQuestion]:
        """Lease and return up to `limit` questions that are due, the longest due first.

        The order is the same over all `keys`, so no producer or topic holds back another.
        """
        heaps = self._heaps_of(keys)
        taken: list[OpenQuestion] = []
        self.met_busy = False
        while len(taken) < limit:
            entry = _soonest(heaps)
            if entry is None or entry.due > now:
                break
            question = entry.question
            if self._is_deciding(question.entry):
                self.met_busy = True
                self._put_off(question, now + BUSY_SECONDS)
                continue
            self.lease(question, now)
            taken.append(question)
        return taken

    def lease(self, question: OpenQuestion, now: float) -> None:
        """Give the question a new token, and put it off until the lease ends. A parked one stays
        parked.
        """
        question.token = f"{self._random.getrandbits(64):016x}"
        until = now + self._options.check_lease_seconds
        if question.parked:
            question.due = until
        else:
            self._put_off(question, until)

    def count_unknown(self, question: OpenQuestion, now: float) -> bool:
        """Count an answer "unknown". Each one puts the question off for longer.

        Return True after the last answer that the engine's options allow. Then the question is
        parked, or the caller rolls the transaction back.
        """
        options = self._options
        question.was_given_back = False
        question.token = ""
        question.tries += 1
        question.answers += 1
        question.entry.asked += 1
        if options.on_undecided != "ask" and question.answers >= options.check_answers_max:
            if options.on_undecided == "park":
                question.due, question.number, question.parked = math.inf, NO_NUMBER, True
            return True
        longest = min(
            options.check_backoff_seconds * 2.0 ** min(question.answers - 1, 60),
            options.check_backoff_seconds * BACKOFF_FACTOR_MAX,
        )
        self._put_off(question, now + longest * self._random.uniform(0.5, 1.0))
        return False

    def give_back(self, question: OpenQuestion, now: float) -> None:
        """Make the question due now, because its checker died. If that happened before and no
        checker has answered since, wait for the end of the lease: the question may be what kills
        its checkers.
        """
        if question.was_given_back or question.parked:
            return
        question.was_given_back = True
        question.token = ""
        self._put_off(question, now)

    def make_due(self, question: OpenQuestion, now: float) -> None:
        """Make the question due now, or at the end of its lease. A parked one counts its answers
        from 0 again.
        """
        is_leased = question.is_leased(now)
        if question.parked:
            question.answers = 0
            self._put_off(question, question.due if is_leased else now)
        elif not is_leased:
            self._put_off(question, now)

    @cached_property
    def _random(self) -> Random:
        return Random(self._seed)

    def _heaps_of(self, keys: Iterable[QuestionKey]) -> list[QuestionHeap]:
        self._index_new()
        keys = tuple(keys)
        if not self._by_topic and any(topic is not None for _, topic in keys):
            self._index_by_topic()
        return [heap for key in keys if (heap := self._heaps.get(key)) is not None]

    def _index_by_topic(self) -> None:
        """Build the heaps by topic, at the first call that asks by topic."""
        self._by_topic = True
        for question in self._open.values():
            for topic in question.topics:
                heap = self._heaps.setdefault((question.producer, topic), QuestionHeap())
                heap.members.add(question.entry.tx)
                if question.number != NO_NUMBER:
                    heap.add(HeapEntry(question.due, question.number, question))

    def _put_off(self, question: OpenQuestion, due: float) -> None:
        question.due, question.number, question.parked = due, next(self._numbers), False
        entry = HeapEntry(due, question.number, question)
        for key in self.keys_of(question):
            self._heaps[key].add(entry)

    def _check(self) -> None:
        self._index_new()
        indexed = [(key, each) for each in self._open.values() for key in self.keys_of(each)]
        assert {key for key, _ in indexed} == self._heaps.keys()
        for key, heap in self._heaps.items():
            members = [each for where, each in indexed if where == key]
            current = [entry.question for entry in heap.entries if not entry.is_stale]
            assert heap.members == {each.entry.tx for each in members}
            assert set(current) == {each for each in members if not each.parked}
            assert len(current) == len(set(current)), "a question is twice in a heap"
            assert len(heap.entries) <= 2 * len(heap.members) + STALE_MAX + 1


def _soonest(heaps: Iterable[QuestionHeap]) -> HeapEntry | None:
    entries = (entry for heap in heaps if (entry := heap.soonest()) is not None)
    return min(entries, default=None)
