"""The schedule of questions, against a model with one row for each transaction."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from fmq import Options
from fmq.feedback.schedule import BUSY_SECONDS, STALE_MAX, OpenQuestion, QuestionKey, Schedule
from fmq.store.bytes.kinds import Kind, Prepare
from fmq.tx.ledger.ledger import Entry
from tests.store.samples import run_of

OPTIONS = Options(
    check_lease_seconds=7.0,
    check_backoff_seconds=4.0,
    on_undecided="park",
    check_answers_max=4,
)
PRODUCERS = ("p", "q", "")
TOPICS = ("a", "b", "c")
KEYS: list[QuestionKey] = [(producer, topic) for producer in PRODUCERS for topic in (None, *TOPICS)]


def never_deciding(entry: Entry) -> bool:
    """Return that no decision is on its way."""
    return False


def entry(tx: int, producer: str, *topics: str) -> Entry:
    """Return an undecided transaction with a message for each of `topics`."""
    made = Entry(Prepare(f"T{tx}", producer, 0, len(topics), len(topics), 0, b"", tx=tx))
    made.runs = [run_of(Kind.PRE_MESSAGE, each, 0, 0, 1, 0, tx) for each in topics]
    return made


@dataclass
class Row:
    """What the model knows of one transaction."""

    tx: int
    producer: str
    topics: tuple[str, ...]
    due: float
    turn: int  # of rows due at the same time, the lowest turn comes first
    is_out: bool = False
    answers: int = 0
    parked: bool = False
    busy: bool = False

    def is_under(self, key: QuestionKey) -> bool:
        return self.producer == key[0] and (key[1] is None or key[1] in self.topics)


class Model:
    """A schedule beside a plain list of rows."""

    def __init__(self) -> None:
        self.deciding: set[int] = set()
        self.schedule = Schedule(OPTIONS, b"seed", lambda entry: entry.tx in self.deciding)
        self.rows: list[Row] = []
        self.now = 0.0
        self.number = 0
        self.tokens: set[str] = set()

    def put_off(self, row: Row, due: float) -> None:
        self.number += 1
        row.due, row.turn = due, self.number

    def some(self, a: int) -> tuple[Row, OpenQuestion] | None:
        if not self.rows:
            return None
        row = self.rows[a % len(self.rows)]
        question = self.schedule.find(row.tx)
        assert question is not None
        return row, question

    # --- what may happen ------------------------------------------------------------------------

    def add(self, a: int, b: int) -> None:
        self.number += 1
        topics = tuple(topic for i, topic in enumerate(TOPICS) if b >> i & 1)
        row = Row(self.number, PRODUCERS[a % 3], topics, 0.0, 0)
        self.put_off(row, self.now + b)
        self.rows.append(row)
        self.schedule.add(entry(row.tx, row.producer, *topics, *topics[:1]), row.due)

    def remove(self, a: int, b: int) -> None:
        if found := self.some(a):
            row, each = found
            self.rows.remove(row)
            self.schedule.remove(row.tx)
            assert each.token == ""

    def take(self, a: int, b: int) -> None:
        """Take the questions that are due for longest under any of the keys, and none twice."""
        keys = [KEYS[a % 12], KEYS[b % 12], KEYS[(a + b) % 12]][: 1 + b % 3]
        limit = 1 + a % 4
        due = [row for row in self.under(keys) if row.due <= self.now]
        expected: list[Row] = []
        for row in sorted(due, key=lambda row: (row.due, row.turn)):
            if len(expected) == limit:
                break
            if row.busy:
                self.put_off(row, self.now + BUSY_SECONDS)
            else:
                expected.append(row)
                row.is_out = True
                self.put_off(row, self.now + OPTIONS.check_lease_seconds)
        taken = self.schedule.take(keys, limit, self.now)
        assert [each.entry.tx for each in taken] == [row.tx for row in expected]
        new = {each.token for each in taken}
        assert len(new) == len(taken), "two questions have one token"
        assert not new & {"", *self.tokens}, "a token came twice"
        self.tokens |= new

    def under(self, keys: list[QuestionKey]) -> list[Row]:
        return [row for row in self.rows if any(row.is_under(key) for key in keys)]

    def time_passes(self, a: int, b: int) -> None:
        self.now += a / 2

    def count_unknown(self, a: int, b: int) -> None:
        """Answer "unknown": the next question is later, or the transaction is parked."""
        found = self.some(a)
        if found is None or not found[0].is_out:
            return
        row, each = found
        row.answers, row.is_out = row.answers + 1, False
        too_often = self.schedule.count_unknown(each, self.now)
        assert too_often == (row.answers == OPTIONS.check_answers_max)
        if too_often:
            row.parked = True
            self.put_off(row, math.inf)
        else:
            longest = min(4.0 * 2 ** (row.answers - 1), 40.0)
            assert longest / 2 <= each.due - self.now <= longest
            self.put_off(row, each.due)

    def make_due(self, a: int, b: int) -> None:
        """Make a question due, unless it is leased. A parked one begins anew."""
        if found := self.some(a):
            row, each = found
            self.schedule.make_due(each, self.now)
            if not (row.is_out and row.due > self.now):
                row.answers = 0 if row.parked else row.answers
                row.parked = False
                self.put_off(row, self.now)

    def busy(self, a: int, b: int) -> None:
        """Begin or end a decision that is on its way."""
        if found := self.some(a):
            row, each = found
            row.busy = bool(b % 2)
            (self.deciding.add if row.busy else self.deciding.discard)(each.entry.tx)

    # --- what must hold -------------------------------------------------------------------------

    def check(self) -> None:
        self.schedule._check()
        for key in KEYS:
            expected = min((row.due for row in self.under([key])), default=math.inf)
            assert self.schedule.next_due([key]) == expected, key
        assert self.schedule.next_due([]) == math.inf
        everything = self.schedule.oldest_first()
        assert [each.entry.tx for each in everything] == [row.tx for row in self.rows]
        for row, each in zip(self.rows, everything, strict=True):
            known = each.due, each.answers, each.parked, each.token != ""
            assert known == (row.due, row.answers, row.parked, row.is_out)
            assert each.is_leased(self.now) == (row.is_out and row.due > self.now)


ACTS: list[Callable[[Model, int, int], None]] = [
    Model.add,
    Model.add,
    Model.remove,
    Model.take,
    Model.take,
    Model.time_passes,
    Model.count_unknown,
    Model.make_due,
    Model.busy,
]


NUMBERS = st.integers(0, 20)


@given(
    st.lists(
        st.tuples(st.sampled_from(ACTS), st.integers(0, 20), st.integers(0, 20)),
        min_size=20,
        max_size=80,
    )
)
def test_a_schedule_gives_the_same_questions_as_a_list(
    acts: list[tuple[Callable[[Model, int, int], None], int, int]],
) -> None:
    """The same transactions at the same time in the same order, after any steps."""
    model = Model()
    for act, a, b in acts:
        act(model, a, b)
        model.check()


# --- what it costs --------------------------------------------------------------------------------


def entries_of(schedule: Schedule) -> int:
    """Return the number of entries in all heaps, stale ones included."""
    return sum(len(heap.entries) for heap in schedule._heaps.values())


def test_a_decided_transaction_leaves_no_entry() -> None:
    """This holds even if a call asked for it before."""
    schedule = Schedule(OPTIONS, b"seed", never_deciding)
    schedule.add(entry(1, "p", "a"), 60.0)
    for tx in range(2, 2000):
        schedule.add(entry(tx, "p", "a", "b"), 60.0 + tx)
        assert schedule.next_due([("p", None), ("p", "b")]) == 60.0
        schedule.remove(tx)
        assert entries_of(schedule) <= 2 * (STALE_MAX + 3)
    schedule.remove(1)
    assert entries_of(schedule) == 0
    assert not schedule._heaps


def test_a_transaction_decided_before_a_call_asks_enters_no_heap() -> None:
    """Most transactions are decided by their producer, and only the others are asked about."""
    schedule = Schedule(OPTIONS, b"seed", never_deciding)
    for tx in range(1, 100):
        schedule.add(entry(tx, "p", "a"), float(tx))
        if tx != 50:
            schedule.remove(tx)
    assert not schedule._heaps
    assert [each.entry.tx for each in schedule.take([("p", None)], 9, 100.0)] == [50]
    schedule.remove(50)
    assert not schedule._heaps


def test_a_heap_that_no_call_reads_does_not_grow() -> None:
    """A question that is asked by one topic many times has few entries under its other keys."""
    schedule = Schedule(OPTIONS, b"seed", never_deciding)
    schedule.add(entry(1, "p", "a", "b"), 0.0)
    for turn in range(2000):
        assert schedule.take([("p", "a")], 1, turn * 10.0)
        schedule._check()


class Moment(float):
    """A time that counts how often any time is compared: the cost of heaps."""

    compared = 0

    def __lt__(self, other: float) -> bool:
        Moment.compared += 1
        return float(self) < float(other)

    def __gt__(self, other: float) -> bool:
        Moment.compared += 1
        return float(self) > float(other)

    def __eq__(self, other: object) -> bool:
        Moment.compared += 1
        return isinstance(other, float) and float(self) == float(other)

    __hash__ = float.__hash__

    def __add__(self, other: float) -> Moment:
        return Moment(float(self) + other)


def compared(work: Callable[[], object]) -> int:
    before = Moment.compared
    work()
    return Moment.compared - before


MANY = 10_000
EACH_MAX = 64  # times compared for one question: a push and a pop, of up to 14 levels each


def test_ten_thousand_questions_cost_the_same_from_first_to_last() -> None:
    """Take batches of 32 out of 10,000, and decide each batch before the next one."""
    schedule = Schedule(Options(), b"seed", never_deciding)
    for tx in range(1, MANY + 1):
        schedule.add(entry(tx, "p"), Moment(tx))
    now = Moment(2 * MANY)
    seen: list[int] = []
    counts: list[int] = []

    def batch() -> None:
        taken = schedule.take([("p", None)], 32, now)
        seen.extend(each.entry.tx for each in taken)
        for each in taken:
            schedule.remove(each.entry.tx)

    while len(seen) < MANY:
        counts.append(compared(batch))
    assert seen == list(range(1, MANY + 1))
    assert sum(counts) <= MANY * EACH_MAX
    assert sum(counts[-30:]) <= sum(counts[:30])


def test_a_question_costs_no_more_after_many_unknown_answers() -> None:
    """Each answer leaves a stale entry, which is skipped once and then dropped."""
    schedule = Schedule(Options(), b"seed", never_deciding)
    for tx in range(1, 1001):
        schedule.add(entry(tx, "p"), Moment(tx))
    counts = []

    def batch(now: Moment) -> int:
        taken = schedule.take([("p", None)], 32, now)
        for each in taken:
            schedule.count_unknown(each, now)
        return len(taken)

    for turn in range(1, 11):
        now, asked = Moment(10_000.0 * turn), 0
        counts.append(0)
        while asked < 1000:
            before = Moment.compared
            asked += batch(now)
            counts[-1] += Moment.compared - before
        assert batch(now) == 0, "one was asked about twice"
    assert max(counts) <= 1000 * EACH_MAX
    assert max(counts[5:]) <= 1.2 * max(counts[:5])
