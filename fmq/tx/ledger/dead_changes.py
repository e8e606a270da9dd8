"""The changes of a group's dead letters: how the ledger applies them."""

from __future__ import annotations

from fmq.store.bytes.kinds import Changed
from fmq.tx.ledger.carryover import NUMBER_MAX, check_text
from fmq.tx.ledger.dead_letters import CARRIED, REPLAYED, DeadLetterState
from fmq.tx.ledger.ledger import Ledger
from fmq.tx.ledger.state import IllegalStep


def begin(ledger: Ledger, change: Changed) -> None:
    """Note that a group has dead letters from now on. Two appends that are planned together may
    both say so.
    """
    check_text("a group", change.group)
    if change.group not in ledger.dead:
        ledger.dead[change.group] = DeadLetterState(change.group)


def end(ledger: Ledger, change: Changed) -> None:
    """Apply an END_DEAD: the letters at its places were purged, replayed or carried forward."""
    dead = ledger.dead.get(change.group)
    if dead is None:
        if not ledger.unsettled:
            raise IllegalStep(f"dead letters of {change.group!r}, which has none, are ended")
        check_text("a group", change.group)
    if change.value == REPLAYED:
        check_text("a topic", change.topic)
    dead = dead or DeadLetterState(change.group)
    queue = ledger.queue(dead.topic, 0)
    ranges = ranges_of(change)
    for first, stop, new in ranges:
        if not first < stop < NUMBER_MAX or new >= NUMBER_MAX:
            raise IllegalStep(f"the dead letters {first} to {stop} of {change.group!r} are ended")
        if ledger.unsettled or queue is None:
            continue  # a later STATE says what has ended
        if stop > queue.end:
            raise IllegalStep(f"the dead letters {first} to {stop} of {change.group!r} are ended")
        # In a replay, some of the letters may be missing: a later retention has dropped them.
        if dead.closed.count_gaps(first, stop) < stop - max(first, queue.first):
            raise IllegalStep(
                f"dead letters of {change.group!r} between {first} and {stop} are ended twice"
            )
    ledger.dead[change.group] = dead
    for first, stop, new in ranges:
        number = dead.moved.number_at(first)
        dead.closed.add(first, stop)
        dead.moved.take(first, stop)
        if change.value == CARRIED:
            dead.moved.add(new, number, stop - first)
            dead.carried_since += stop - first
    if change.value == REPLAYED:
        ledger.note_replay(dead, change.topic)
        ledger.arrived.add(change.topic)


def ranges_of(change: Changed) -> list[tuple[int, int, int]]:
    """Return the ranges that an END_DEAD ends: first, end, and the new first offset of each."""
    offsets = [place.offset for place in change.places]
    if len(offsets) % 3:
        raise IllegalStep(f"dead letters at {len(offsets)} places are ended: they come in threes")
    return [*zip(offsets[::3], offsets[1::3], offsets[2::3], strict=True)]


def forget(ledger: Ledger, group: str) -> None:
    """Forget the dead letters of a group that is deleted. Their topics are deleted with it."""
    dead = ledger.dead.pop(group, None)
    for topic in () if dead is None else dead.again:
        del ledger.again[group, topic]


def topics_of(ledger: Ledger, group: str) -> list[str]:
    """Return the internal topics of a group, which are deleted with it."""
    dead = ledger.dead.get(group)
    names = (
        [] if dead is None else [dead.topic, *(ledger.again[group, each] for each in dead.again)]
    )
    return [name for name in names if name in ledger.topics]
