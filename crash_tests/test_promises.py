"""The comparison after a real crash can fail: each broken promise is reported by its name.

A store that keeps everything is played in memory, with what the plan of a seed says; then what it
shows is changed in one way.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from multiprocessing import Pipe

import pytest

from crash_tests.oracle import Fate, Lane, Seen, Violation
from crash_tests.real.life import Ear
from crash_tests.real.load import GROUP, Life
from crash_tests.real.plan import DONE, WAYS, Unit, transforming, units
from crash_tests.real.promises import Kept, Promises, Told
from fmq import Options

SEED, UNITS = 7, 60


class PerfectStore:
    """A store in memory that does every call, and notes the promise."""

    def __init__(self) -> None:
        self.promises = Promises(SEED, Kept())
        self.lanes: dict[Lane, tuple[int, list[bytes]]] = {}
        self.undecided: dict[str, int] = {}
        self.outcomes: dict[str, str] = {}
        self.acked: set[tuple[str, int, int]] = set()
        self.promises.check(self.seen())
        self.promises.begin(0, 1)
        for unit in islice(units(SEED, 0, 0), UNITS):
            self.do(unit)
        self.ack("0.c.0", "ack", [("orders", 0, 0), ("orders", 0, 1)])
        self.ack("0.c.1", "leave", [("orders", 0, 2)])

    def do(self, unit: Unit) -> None:
        for fate in WAYS[unit.kind][1:]:
            told: list[Told] = []
            self.undecided.pop(unit.name, None)
            if fate is Fate.UNDECIDED:
                self.undecided[unit.name] = unit.messages
            elif fate is Fate.VISIBLE:
                told = [self.append(lane, bodies) for lane, bodies in unit.bodies.items()]
            if unit.is_tx:
                self.outcomes[unit.name] = OUTCOMES[fate]
            self.promises.did(unit.name, told)

    def append(self, lane: Lane, bodies: list[bytes]) -> Told:
        _, there = self.lanes.setdefault(lane, (0, []))
        there += bodies
        return lane, len(there) - len(bodies), len(bodies), 0

    def ack(self, name: str, kind: str, places: list[tuple[str, int, int]]) -> None:
        self.promises.acks(name, kind, places)
        self.do(transforming(SEED, name, kind))
        self.acked.update(places)

    def seen(self) -> Seen:
        delivered = {
            (topic, queue, offset)
            for (topic, queue), (_, bodies) in self.lanes.items()
            for offset in range(len(bodies))
            if (topic, queue) != DONE
        }
        outcomes = dict.fromkeys(self.promises.transactions(1000), "unknown") | self.outcomes
        return Seen(self.lanes, self.undecided, outcomes, {GROUP: delivered - self.acked})


OUTCOMES = {
    Fate.UNDECIDED: "undecided",
    Fate.VISIBLE: "committed",
    Fate.ROLLED_BACK: "rolled back",
}
ORDERS: Lane = ("orders", 0)


def test_a_store_that_keeps_everything_keeps_every_promise() -> None:
    store = PerfectStore()
    store.promises.check(store.seen())
    store.promises.check(store.seen())
    assert store.promises.done > UNITS


def bodies(store: PerfectStore) -> list[bytes]:
    return store.lanes[ORDERS][1]


def lose_the_last(store: PerfectStore) -> None:
    bodies(store).pop()


def lose_half_a_transaction(store: PerfectStore) -> None:
    last = [unit for unit in islice(units(SEED, 0, 0), UNITS) if unit.kind == "commit at once"][-1]
    lane = next(iter(last.bodies))
    store.lanes[lane][1].remove(last.bodies[lane][-1])


def show_one_twice(store: PerfectStore) -> None:
    bodies(store).append(bodies(store)[0])


def show_what_nobody_sent(store: PerfectStore) -> None:
    bodies(store).append(b"0.0.0 0 of somebody else")


def swap_two(store: PerfectStore) -> None:
    there = bodies(store)
    there[4], there[5] = there[5], there[4]


def drop_the_first(store: PerfectStore) -> None:
    store.lanes[ORDERS] = 1, bodies(store)[1:]


def show_in_another_queue(store: PerfectStore) -> None:
    store.lanes["mails", 0][1].append(bodies(store).pop())


def show_what_was_rolled_back(store: PerfectStore) -> None:
    back = next(unit for unit in units(SEED, 0, 0) if unit.kind == "roll back")
    for lane, each in back.bodies.items():
        store.append(lane, each)


def forget_an_undecided_one(store: PerfectStore) -> None:
    store.undecided.popitem()


def decide_by_itself(store: PerfectStore) -> None:
    name, _ = store.undecided.popitem()
    store.outcomes[name] = "rolled back"


def forget_an_outcome(store: PerfectStore) -> None:
    name = next(name for name, each in store.outcomes.items() if each == "committed")
    store.outcomes[name] = "unknown"


def forget_an_ack(store: PerfectStore) -> None:
    store.acked.remove(("orders", 0, 1))


def forget_what_is_held(store: PerfectStore) -> None:
    store.acked.remove(("orders", 0, 2))


def hold_what_is_not_acked(store: PerfectStore) -> None:
    store.acked.add(("orders", 0, 3))


@pytest.mark.parametrize(
    ("broken", "invariant"),
    [
        (lose_the_last, "I1"),
        (lose_half_a_transaction, "I1"),
        (drop_the_first, "I1"),
        (show_what_was_rolled_back, "I3"),
        (forget_an_undecided_one, "I4"),
        (decide_by_itself, "I4"),
        (forget_an_outcome, "I4"),
        (show_one_twice, "I5"),
        (show_what_nobody_sent, "I5"),
        (show_in_another_queue, "I5"),
        (swap_two, "I6"),
        (forget_an_ack, "I7"),
        (forget_what_is_held, "I7"),
        (hold_what_is_not_acked, "I7"),
    ],
)
def test_a_broken_promise_is_noticed(
    broken: Callable[[PerfectStore], None], invariant: str
) -> None:
    store = PerfectStore()
    broken(store)
    with pytest.raises(Violation) as caught:
        store.promises.check(store.seen())
    assert caught.value.invariant == invariant


def next_of(store: PerfectStore, *kinds: str) -> list[Unit]:
    """Make steps until units of these kinds are the next ones."""
    plan = list(islice(units(SEED, 0, 0), UNITS, UNITS + 400))
    for at, unit in enumerate(plan):
        found = plan[at : at + len(kinds)]
        if [each.kind for each in found] == list(kinds):
            return found
        store.do(unit)
    raise LookupError(kinds)


def show(store: PerfectStore, unit: Unit) -> None:
    for lane, each in unit.bodies.items():
        store.append(lane, each)


def hide(store: PerfectStore, unit: Unit) -> None:
    for lane, each in unit.bodies.items():
        del store.lanes[lane][1][-len(each) :]


@pytest.mark.parametrize("happened", [False, True])
@pytest.mark.parametrize("kind", ["send", "send many", "commit at once"])
def test_a_call_under_way_may_have_happened_or_not_and_that_stays(
    kind: str, happened: bool
) -> None:
    store = PerfectStore()
    (unit,) = next_of(store, kind)
    if happened:
        show(store, unit)
    if unit.is_tx:
        store.outcomes[unit.name] = "committed" if happened else "unknown"
    store.promises.check(store.seen())
    store.promises.check(store.seen())
    (hide if happened else show)(store, unit)
    with pytest.raises(Violation):
        store.promises.check(store.seen())


def test_a_call_under_way_is_there_as_a_whole_or_not_at_all() -> None:
    store = PerfectStore()
    (unit,) = next_of(store, "commit at once")
    lane, each = next(iter(unit.bodies.items()))
    store.append(lane, each)
    store.outcomes[unit.name] = "committed"
    with pytest.raises(Violation, match="I2"):
        store.promises.check(store.seen())


@pytest.mark.parametrize("there", [0, 1, 2])
def test_an_answer_after_the_power_cut_has_begun_is_in_doubt(there: int) -> None:
    """The unit may be there, and so may the next one of its thread; or neither."""
    store = PerfectStore()
    both = next_of(store, "send", "send")
    store.promises.in_doubt = True
    for unit in both:
        store.promises.did(unit.name, [])
    for unit in both[:there]:
        show(store, unit)
    store.promises.check(store.seen())


def test_a_look_after_the_power_cut_has_begun_promises_nothing() -> None:
    """A recovery that runs while the power fails may show what no disk keeps."""
    store = PerfectStore()
    (unit,) = next_of(store, "send")
    store.promises.in_doubt = True
    show(store, unit)
    store.promises.check(store.seen())
    store.promises.in_doubt = False
    hide(store, unit)
    store.promises.check(store.seen())


def test_a_life_that_begins_after_a_cut_began_promises_nothing() -> None:
    """The process recovers and works in a dead file system until it notices."""
    store = PerfectStore()
    store.promises.in_doubt = True
    store.promises.check(store.seen())
    store.promises.begin(1, 1)
    first = next(units(SEED, 1, 0))
    for _ in WAYS[first.kind][1:]:
        store.promises.did(first.name, [])
    store.promises.in_doubt = False
    if first.is_tx:
        store.outcomes[first.name] = "unknown"
    store.promises.check(store.seen())


@pytest.mark.parametrize("late", [False, True])
def test_a_call_counts_if_it_returned_before_the_cut_even_if_reported_later(
    late: bool,
) -> None:
    store = PerfectStore()
    (unit,) = next_of(store, "send")
    (lane,) = unit.bodies
    reader, writer = Pipe(duplex=False)
    ear = Ear(reader, Life("", Options(), SEED, 0, 1, 0, [], False, False, ""), store.promises)
    ear.ended, ear.cut_at = True, 10.0
    receipt = lane, len(store.lanes[lane][1]), 1, 0
    writer.send((11.0 if late else 9.0, "did", unit.name, [receipt]))
    writer.close()
    ear.listen_to_the_end()
    store.promises.in_doubt = False  # of the next life
    if late:
        store.promises.check(store.seen())
    else:
        with pytest.raises(Violation, match="I1"):
            store.promises.check(store.seen())
