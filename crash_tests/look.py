"""Reads everything that an engine shows, through its public calls, for the oracle."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from crash_tests.oracle import Lane, Place, Seen, Violation, tx_id_of
from fmq.consume.calls.consumer import member_of
from fmq.consume.claims.poll import Poll
from fmq.errors import OffsetGone, UnknownTransaction
from fmq.testing.inside import inside

if TYPE_CHECKING:
    from fmq.basics.results import QueueInfo
    from fmq.engines.engine import Engine
    from fmq.engines.read_only_engine import ReadOnlyEngine

ALL = 1_000_000
TAIL = 5  # how many messages one call of engine.tail() reads
Lanes = dict[Lane, tuple[int, list[bytes]]]  # first offset, bodies from there on


def look(engine: Engine, names: Iterable[str], groups: dict[str, list[str]]) -> Seen:
    """Return what `engine` shows of all queues, of the transactions `names` and to `groups`.

    Of any other group only whether it is done with anything.
    """
    seen = look_at(engine, names, groups)
    check_everything_is_asked(engine)
    return seen


def look_at(engine: Engine, names: Iterable[str], groups: dict[str, list[str]]) -> Seen:
    """Return what a running engine shows. It is not asked about everything, because it goes on."""
    lanes = read_lanes(engine)
    check_tail(engine, lanes)
    undecided = {tx.tx_id: tx.messages for tx in engine.undecided()}
    outcomes = {name: outcome_of(engine, tx_id_of(name), lanes) for name in names}
    delivered = {group: deliveries(engine, group, groups[group], lanes) for group in groups}
    others = {
        info.group
        for info in engine.groups()
        if info.group not in groups
        and info.unread != len(lanes.get((info.topic, info.queue), (0, []))[1])
    }
    marks = {name for name in names if is_marked(engine, name)}
    options = {each.name: each.value for each in engine.settings() if each.source == "directory"}
    return Seen(lanes, undecided, outcomes, delivered, marks, others, options)


def is_marked(engine: Engine | ReadOnlyEngine, name: str) -> bool:
    """Return whether the transaction `name` has set its mark. Raises Violation for any other
    value.
    """
    mark = engine.mark(name)
    if mark is not None and mark.data != name.encode():
        raise Violation("I14", f"the mark of {name} is {mark}")
    return mark is not None


def check_everything_is_asked(engine: Engine) -> None:
    """Raise Violation unless the questions right after a recovery are exactly the undecided
    transactions.
    """
    undecided = engine.undecided()
    producers = {tx.producer or "" for tx in undecided}
    asked = [question.tx_id for question in engine.feedback.ask(producers, limit=ALL, wait=0.0)]
    if sorted(asked) != sorted(tx.tx_id for tx in undecided):
        raise Violation("I13", f"asked about are {asked}, and undecided {undecided}")


def read_lanes(engine: Engine | ReadOnlyEngine) -> Lanes:
    """Return every queue from its first message to its last."""
    lanes = {}
    for queue in engine.queues():
        at, bodies = _read_lane(engine, queue)
        if at != queue.next:
            raise _ends_at(queue, at)
        if at:
            lanes[queue.topic, queue.queue] = queue.first, bodies
    return lanes


def check_tail(engine: Engine, lanes: Lanes) -> None:
    """Raise Violation unless reading the journal append by append gives the messages of all
    queues.
    """
    found: dict[Lane, list[bytes]] = {}
    position, before = 0, -1
    while (part := engine.tail(position, limit=TAIL)).messages:
        for message in part.messages:
            topic, queue, at, *_ = message.origin or ("", 0, -1)
            if not before <= at < part.position:
                raise Violation("I6", f"{message} comes behind {before}, up to {part.position}")
            before = at
            found.setdefault((topic, queue), []).append(message.body)
        position = part.position
    for lane in lanes.keys() | found.keys():
        _, bodies = lanes.get(lane, (0, []))
        if found.get(lane, []) != bodies:
            raise Violation("I6", f"{lane} has {len(bodies)}, the tail {len(found.get(lane, []))}")


def read_growing_lanes(engine: ReadOnlyEngine) -> Lanes:
    """Return the queues while an engine writes: there may be more by now, or retention may drop
    some messages.
    """
    lanes = {}
    for queue in engine.queues():
        with suppress(OffsetGone):
            at, bodies = _read_lane(engine, queue)
            if at < queue.next:
                raise _ends_at(queue, at)
            lanes[queue.topic, queue.queue] = queue.first, bodies
    return lanes


def _read_lane(engine: Engine | ReadOnlyEngine, queue: QueueInfo) -> tuple[int, list[bytes]]:
    """Return the end of the queue, and its messages."""
    at, bodies = queue.first, list[bytes]()
    while batch := engine.read_batch(queue.topic, queue=queue.queue, offset=at, limit=ALL):
        if batch.offset != at:
            raise Violation("I6", f"{queue} gives {batch.offset} where {at} was asked for")
        bodies += batch.bodies
        at = batch.next
    return at, bodies


def _ends_at(queue: QueueInfo, at: int) -> Violation:
    lane = queue.topic, queue.queue
    return Violation("I6", f"{lane} says {queue.first} to {queue.next}, and ends at {at}")


def outcome_of(engine: Engine, name: str, lanes: Lanes) -> str:
    """Return the engine's outcome of a transaction. The messages of its receipts must be there."""
    try:
        outcome = engine.outcome(name)
    except UnknownTransaction:
        return "unknown"
    for receipt in outcome.receipts:
        first, bodies = lanes.get((receipt.topic, receipt.queue), (0, []))
        if receipt.offset + receipt.count > first + len(bodies):
            raise Violation("I1", f"{name} published {receipt}, which is not there")
    return outcome.state


def deliveries(engine: Engine, group: str, topics: list[str], lanes: Lanes) -> set[Place]:
    """Return all messages that the group can get now, without acking any.

    A look writes nothing, so where there is no group none is made: it would get everything.
    """
    begun = {info.topic for info in engine.groups(group)}
    found: set[Place] = {
        (topic, queue, first + i)
        for (topic, queue), (first, bodies) in lanes.items()
        if topic in topics and topic not in begun
        for i in range(len(bodies))
    }
    if not begun:
        return found
    with engine.consumer(sorted(begun), group=group) as consumer:
        # Not a poll, which would write that it tries them.
        member, how = member_of(consumer), {"as_batch": True, "in_one_piece": True}
        while claimed := member.drive(member.taking(Poll(member.clock, ALL, 0.0, **how))):
            _, (batch,) = claimed
            topic, queue, offset = batch.topic, batch.queue, batch.offset
            first, bodies = lanes[topic, queue]
            places = {(topic, queue, offset + i) for i in range(len(batch))}
            shown = (*bodies[offset - first : offset - first + len(batch)],)
            if places & found or shown != batch.bodies:
                raise Violation("I5", f"{group} gets {places & found} twice, or wrong bodies")
            found |= places
    return found | _waiting(engine, group, sorted(begun))


def _waiting(engine: Engine, group: str, topics: list[str]) -> set[Place]:
    """Return the messages that the group has tried before and gets later."""
    groups = inside(engine).groups
    return {
        (info.topic, info.queue, offset)
        for topic in topics
        for info in engine.queues(topic)
        for holds in [groups.holds.of(group, info.topic, info.queue)]
        for waiting in holds.redeliveries.within(0, info.next)
        for first, end in holds.unacked(waiting.first, waiting.end)
        for offset in range(first, end)
    }
