"""Reading everything an engine shows, through its public calls, as the oracle takes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crash_tests.oracle import Lane, Oracle, Place, Seen, Violation
from fmq.errors import UnknownTransaction

if TYPE_CHECKING:
    from fmq.engine import Engine
    from fmq.readonly import ReadOnlyEngine

ALL = 1_000_000


def look(engine: Engine, oracle: Oracle) -> Seen:
    """What `engine` shows of all that the oracle has heard of, and of anything else."""
    lanes = read_lanes(engine)
    undecided = {tx.tx_id: tx.messages for tx in engine.undecided()}
    outcomes = {name: outcome_of(engine, name, lanes) for name in oracle.tx_names()}
    delivered = {
        group: deliveries(engine, group, topics, lanes)
        for group, topics in oracle.rules.groups.items()
    }
    check_everything_is_asked(engine)
    return Seen(lanes, undecided, outcomes, delivered)


def check_everything_is_asked(engine: Engine) -> None:
    """Violation unless the questions right after a recovery are exactly the undecided."""
    undecided = engine.undecided()
    producers = {tx.producer or "" for tx in undecided}
    asked = [question.tx_id for question in engine.feedback.ask(producers, limit=ALL, wait=0.0)]
    if sorted(asked) != sorted(tx.tx_id for tx in undecided):
        raise Violation("I13", f"asked about are {asked}, and undecided {undecided}")


def read_lanes(engine: Engine | ReadOnlyEngine) -> dict[Lane, tuple[int, list[bytes]]]:
    """Every queue from its first message to its last."""
    lanes = {}
    for queue in engine.queues():
        lane = queue.topic, queue.queue
        messages = engine.read(*lane[:1], queue=lane[1], offset=queue.first, limit=ALL)
        offsets = [message.offset for message in messages]
        if offsets != list(range(queue.first, queue.next)):
            raise Violation("I6", f"{lane} says {queue.first} to {queue.next}, and has {offsets}")
        if messages:
            lanes[lane] = queue.first, [bytes(message.body) for message in messages]
        elif queue.first:
            lanes[lane] = queue.first, []
    return lanes


def outcome_of(engine: Engine, name: str, lanes: dict[Lane, tuple[int, list[bytes]]]) -> str:
    """What the engine says of a transaction; what it says it published must be there."""
    try:
        outcome = engine.outcome(name)
    except UnknownTransaction:
        return "unknown"
    for receipt in outcome.receipts:
        first, bodies = lanes.get((receipt.topic, receipt.queue), (0, []))
        if receipt.offset + receipt.count > first + len(bodies):
            raise Violation("I1", f"{name} published {receipt}, which is not there")
    return outcome.state


def deliveries(
    engine: Engine, group: str, topics: list[str], lanes: dict[Lane, tuple[int, list[bytes]]]
) -> set[Place]:
    """All that the group can get now; nothing of it is acked."""
    found: set[Place] = set()
    with engine.consumer(topics, group=group) as consumer:
        while got := consumer.poll(limit=ALL):
            for each in got:
                place = each.topic, each.queue, each.offset
                first, bodies = lanes[each.topic, each.queue]
                if place in found or bodies[each.offset - first] != each.body:
                    raise Violation("I5", f"{group} gets {place} twice, or with a wrong body")
                found.add(place)
    return found
