"""When which undecided transaction is to be asked about: the book that is kept of them.

Each stands in one line for its producer and, once somebody has asked by topic, in one more for
each of its topics. So whoever asks finds the next one at once, however many there are. A line is a
heap. A transaction that is put off, asked about or decided leaves its old place where it is; such
a place is passed over, and when most of a line are such, it is made anew. So no line is much
longer than those in it.

Most are decided before anybody asks. So one that is new stands in no line until somebody does.

Times are those of `Clock.monotonic`; the book itself never looks at a clock. Guarded by the
engine's lock.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import cached_property
from heapq import heapify, heappop, heappush
from itertools import count
from random import Random

from fmq.options import Options
from fmq.tx.ledger import Entry
from fmq.tx.state import State

BUSY_SECONDS = 1.0  # a decision is on its way to the disk: look again if it does not get there
PASSED_MAX = 64  # places in a line that may be over before it is worth a look at their share

Key = tuple[str, str | None]
"""A producer, and one topic or None for all."""


class OpenQuestion:
    """One undecided transaction, as far as asking goes."""

    __slots__ = ("answers", "due", "entry", "parked", "token", "tries", "turn")

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self.due = math.inf
        self.turn = NO_TURN  # the number of its present places
        self.token = ""  # of the question that is out; an answer needs it
        self.answers = 0  # how many were "unknown"
        self.tries = 0  # how many questions ended without a decision, failed checkers included
        self.parked = False

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

    def is_out(self, now: float) -> bool:
        """Whether somebody is being asked about it."""
        return self.token != "" and self.due > now


NO_TURN = -1
Place = tuple[float, int, OpenQuestion]
"""When it is due, the number of its turn, and what is."""


class _Row:
    """Those under one key, the soonest first."""

    __slots__ = ("members", "places")

    def __init__(self) -> None:
        self.members: set[int] = set()  # by number
        self.places: list[Place] = []

    def put(self, place: Place) -> None:
        self.tidy()
        heappush(self.places, place)

    def tidy(self) -> None:
        """Forget what is over, if that is most of the line: for each place a bounded price."""
        if len(self.places) > 2 * len(self.members) + PASSED_MAX:
            current = [place for place in self.places if place[2].turn == place[1]]
            heapify(current)
            self.places = current

    def soonest(self) -> Place | None:
        places = self.places
        while places and places[0][2].turn != places[0][1]:
            heappop(places)
        return places[0] if places else None


class Schedule:
    """All undecided transactions of one engine."""

    def __init__(self, options: Options, seed: bytes, is_deciding: Callable[[Entry], bool]) -> None:
        self._options = options
        self._is_deciding = is_deciding
        self._seed = seed
        self._new: dict[int, tuple[Entry, float]] = {}  # by number, with when it is due
        self._open: dict[int, OpenQuestion] = {}  # by number
        self._lines: dict[Key, _Row] = {}  # each has members
        self._by_topic = False  # whether there are lines for topics, too
        self._turns = count()
        self.met_busy = False  # whether the last `take` came to one whose decision is on its way

    def add(self, entry: Entry, due: float) -> None:
        """`entry` became undecided; nobody is asked about it before `due`."""
        self._new[entry.tx] = entry, due

    def _take_in_new(self) -> None:
        """Index what has become undecided since the last call asked."""
        for tx, (entry, due) in self._new.items():
            each = self._open[tx] = OpenQuestion(entry)
            for key in self.keys_of(each):
                self._lines.setdefault(key, _Row()).members.add(tx)
            self._put_off(each, due)
        self._new.clear()

    def remove(self, tx: int) -> None:
        """It has been decided."""
        self._new.pop(tx, None)
        each = self._open.pop(tx, None)
        if each is None:
            return
        each.turn, each.token = NO_TURN, ""
        for key in self.keys_of(each):
            line = self._lines[key]
            line.members.discard(tx)
            if line.members:
                line.tidy()
            else:
                del self._lines[key]

    def keys_of(self, each: OpenQuestion) -> tuple[Key, ...]:
        """The lines that it stands in."""
        if self._by_topic:
            return (each.producer, None), *((each.producer, topic) for topic in each.topics)
        return ((each.producer, None),)

    def open(self, tx: int) -> OpenQuestion:
        """The undecided transaction of this number."""
        self._take_in_new()
        return self._open[tx]

    def snapshot(self) -> tuple[list[OpenQuestion], list[tuple[Entry, float]]]:
        """Return all of them, in no order, for `in_order`: the least that needs the lock."""
        return [*self._open.values()], [*self._new.values()]

    @staticmethod
    def in_order(
        snapshot: tuple[list[OpenQuestion], list[tuple[Entry, float]]],
    ) -> list[OpenQuestion]:
        """Return all of a snapshot, the oldest first. Also without the engine's lock."""
        known, new = snapshot
        everything = {entry.tx: OpenQuestion(entry) for entry, _ in new}
        everything.update((each.entry.tx, each) for each in known)
        return [everything[tx] for tx in sorted(everything)]

    def oldest_first(self) -> list[OpenQuestion]:
        """All of them, in the order of their numbers: also when some were relocated."""
        self._take_in_new()
        return [self._open[tx] for tx in sorted(self._open)]

    def take(self, keys: Iterable[Key], limit: int, now: float) -> list[OpenQuestion]:
        """Up to `limit` that are due, each with a new token; nobody else gets them for a while.

        Who has been due for longest comes first, whichever its key: none holds back another.
        """
        lines = self._lines_of(keys)
        taken: list[OpenQuestion] = []
        self.met_busy = False
        while len(taken) < limit:
            place = _soonest(lines)
            if place is None or place[0] > now:
                break
            each = place[2]
            if self._is_deciding(each.entry):
                self.met_busy = True
                self._put_off(each, now + BUSY_SECONDS)
                continue
            self.lease(each, now)
            taken.append(each)
        return taken

    def lease(self, each: OpenQuestion, now: float) -> None:
        """Whoever asked has it for a while, and nobody had it before; what is parked stays so."""
        each.token = f"{self._random.getrandbits(64):016x}"
        until = now + self._options.check_lease_seconds
        if each.parked:
            each.due = until
        else:
            self._put_off(each, until)

    def next_due(self, keys: Iterable[Key]) -> float:
        """When the next of them is due."""
        place = _soonest(self._lines_of(keys))
        return math.inf if place is None else place[0]

    def unknown(self, each: OpenQuestion, now: float) -> bool:
        """Its producer could not tell; whether that was once too often."""
        options = self._options
        each.token = ""
        each.tries += 1
        each.answers += 1
        each.entry.asked += 1
        if options.on_undecided != "ask" and each.answers >= options.check_answers_max:
            if options.on_undecided == "park":
                each.due, each.turn, each.parked = math.inf, NO_TURN, True
            return True
        longest = min(
            options.check_backoff_seconds * 2.0 ** min(each.answers - 1, 60),
            options.check_backoff_max_seconds,
        )
        self._put_off(each, now + longest * self._random.uniform(0.5, 1.0))
        return False

    def hurry(self, each: OpenQuestion, now: float) -> None:
        """Let it be asked about, now or when nobody is; one that was parked, from the beginning."""
        is_out = each.is_out(now)
        if each.parked:
            each.answers = 0
            self._put_off(each, each.due if is_out else now)
        elif not is_out:
            self._put_off(each, now)

    @cached_property
    def _random(self) -> Random:
        return Random(self._seed)

    def _lines_of(self, keys: Iterable[Key]) -> list[_Row]:
        self._take_in_new()
        keys = tuple(keys)
        if not self._by_topic and any(topic is not None for _, topic in keys):
            self._begin_lines_of_topics()
        return [line for key in keys if (line := self._lines.get(key)) is not None]

    def _begin_lines_of_topics(self) -> None:
        """Somebody asks by topic for the first time, and will again."""
        self._by_topic = True
        for each in self._open.values():
            for topic in each.topics:
                line = self._lines.setdefault((each.producer, topic), _Row())
                line.members.add(each.entry.tx)
                if each.turn != NO_TURN:
                    line.put((each.due, each.turn, each))

    def _put_off(self, each: OpenQuestion, due: float) -> None:
        each.due, each.turn, each.parked = due, next(self._turns), False
        for key in self.keys_of(each):
            self._lines[key].put((due, each.turn, each))

    def _check(self) -> None:
        self._take_in_new()
        standing = [(key, each) for each in self._open.values() for key in self.keys_of(each)]
        assert {key for key, _ in standing} == self._lines.keys()
        for key, line in self._lines.items():
            members = [each for where, each in standing if where == key]
            current = [place[2] for place in line.places if place[2].turn == place[1]]
            assert line.members == {each.entry.tx for each in members}
            assert set(current) == {each for each in members if not each.parked}
            assert len(current) == len(set(current)), "one stands twice in a line"
            assert len(line.places) <= 2 * len(line.members) + PASSED_MAX + 1


def _soonest(lines: Iterable[_Row]) -> Place | None:
    places = (place for line in lines if (place := line.soonest()) is not None)
    return min(places, default=None)
