"""When which undecided transaction is to be asked about: the book that is kept of them.

Each waits in one heap for its producer, and in one more for each of its topics, so that whoever
asks finds the next one at once, however many there are. What is found in a heap and is not due
then any more has been asked, put off or decided meanwhile, and is passed over.

Times are those of `Clock.monotonic`; the book itself never looks at a clock. Guarded by the
engine's lock.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cached_property
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING

from fmq.options import Options
from fmq.tx.ledger import Entry

if TYPE_CHECKING:
    from random import Random

BUSY_SECONDS = 1.0  # a decision is on its way to the disk: look again if it does not get there

Key = tuple[str, str | None]
"""A producer, and one topic or None for all."""


class Open:
    """One undecided transaction, as far as asking goes."""

    __slots__ = ("answers", "due", "entry", "keys", "parked", "token")

    def __init__(self, entry: Entry) -> None:
        producer = entry.prepare.producer
        topics = dict.fromkeys(run.topic for run in entry.runs)
        self.entry = entry
        self.keys: tuple[Key, ...] = ((producer, None), *((producer, topic) for topic in topics))
        self.due = math.inf
        self.token = ""  # of the question that is out; an answer needs it
        self.answers = 0  # how many were "unknown"
        self.parked = False

    @property
    def tx_id(self) -> str:
        return self.entry.prepare.tx_id

    @property
    def producer(self) -> str:
        return self.entry.prepare.producer


class Book:
    """All undecided transactions of one engine."""

    def __init__(self, options: Options, seed: bytes) -> None:
        self._options = options
        self._seed = seed
        self._open: dict[int, Open] = {}  # by the transaction's number
        self._heaps: dict[Key, list[tuple[float, int, Open]]] = {}
        self._numbers = count()

    def add(self, entry: Entry, due: float) -> Open:
        """`entry` became undecided; nobody is asked about it before `due`."""
        each = self._open[entry.tx] = Open(entry)
        self._put_off(each, due)
        return each

    def remove(self, tx: int) -> None:
        """It has been decided."""
        each = self._open.pop(tx, None)
        if each is not None:
            each.due, each.token = math.inf, ""

    def get(self, tx: int) -> Open | None:
        return self._open.get(tx)

    def all(self) -> Iterable[Open]:
        return self._open.values()

    def take(self, keys: Iterable[Key], limit: int, now: float) -> list[Open]:
        """Up to `limit` that are due, each with a new token; nobody else gets them for a while."""
        taken: list[Open] = []
        for key in keys:
            heap = self._heaps.get(key, [])
            while heap and heap[0][0] <= now and len(taken) < limit:
                due, _, each = heappop(heap)
                if each.due != due:
                    continue
                if each.entry.busy:
                    self._put_off(each, now + BUSY_SECONDS)
                    continue
                self.lease(each, now)
                taken.append(each)
        return taken

    def lease(self, each: Open, now: float) -> None:
        """Whoever asked has it for a while, and nobody had it before."""
        each.token = f"{self._random.getrandbits(64):016x}"
        self._put_off(each, now + self._options.check_lease_seconds)

    def next_due(self, keys: Iterable[Key]) -> float:
        """When the next of them is due."""
        soonest = math.inf
        for key in keys:
            heap = self._heaps.get(key)
            while heap and heap[0][2].due != heap[0][0]:
                heappop(heap)
            if heap:
                soonest = min(soonest, heap[0][0])
            elif heap is not None:
                del self._heaps[key]
        return soonest

    def unknown(self, each: Open, now: float) -> bool:
        """Its producer could not tell; whether that was once too often."""
        options = self._options
        each.token = ""
        each.answers += 1
        if options.on_undecided != "ask" and each.answers >= options.check_answers_max:
            if options.on_undecided == "park":
                each.parked = True
                each.due = math.inf
            return True
        longest = min(
            options.check_backoff_seconds * 2.0 ** min(each.answers - 1, 60),
            options.check_backoff_max_seconds,
        )
        self._put_off(each, now + longest * self._random.uniform(0.5, 1.0))
        return False

    def hurry(self, each: Open, now: float) -> None:
        """Let it be asked about now; one that was parked is asked from the beginning."""
        if each.parked:
            each.parked, each.answers = False, 0
        each.token = ""
        self._put_off(each, now)

    @cached_property
    def _random(self) -> Random:
        from random import Random  # here: many an engine never has anything undecided

        return Random(self._seed)

    def _put_off(self, each: Open, due: float) -> None:
        each.due = due
        for key in each.keys:
            heappush(self._heaps.setdefault(key, []), (due, next(self._numbers), each))
