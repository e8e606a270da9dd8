"""The transition of ERASE.

An erased message keeps its offset. All groups are done with it: those that there are when it is
erased, and those that are made or moved later. Retention drops it like any other.
"""

from __future__ import annotations

from collections.abc import Iterator

from fmq.store.bytes.kinds import AckRange, Erasure
from fmq.tx.ledger.carryover import NUMBER_MAX, check_number
from fmq.tx.ledger.ledger import Ledger
from fmq.tx.ledger.state import IllegalStep


def erased(ledger: Ledger, record: Erasure) -> None:
    """Apply an ERASE."""
    for each in record.ranges:
        queue = ledger.queue_met(each.topic, each.queue)
        beyond = queue is not None and queue.is_placed and each.end > queue.end
        if queue is None or beyond or not each.first < each.end < NUMBER_MAX:
            where = f"{each.topic}/{each.queue} from {each.first} to {each.end}"
            raise IllegalStep(f"messages that do not exist are erased: {where}")
    check_number("the number of an erasure", record.number, 1, 1 << 64)
    for base in record.segments:
        check_number("a segment", base)
    known = ledger.erasures
    known.number = record.number
    known.segments.update(dict.fromkeys(record.segments, record.position))
    ledger.changed_at = ledger.acked_at = ledger.end
    for each in record.ranges:
        known.add(each.topic, each.queue, each.first, each.end)
        for group in _groups_of(ledger, each.topic):
            _pass_over(ledger, AckRange(group, *each.key()[1:]))
        for dead in ledger.dead.values():
            if dead.topic == each.topic:
                dead.closed.add(each.first, each.end)


def _groups_of(ledger: Ledger, topic: str) -> Iterator[str]:
    for group, name in list(ledger.subscriptions):
        if name == topic:
            yield group


def _pass_over(ledger: Ledger, ack: AckRange) -> None:
    """Count messages that a group will not get any more as acked and as passed over."""
    key = ack.group, ack.topic, ack.queue
    acked = ledger.acked_of(*key)
    ledger.subscribe(ack.group, ack.topic).skipped += acked.count_gaps(ack.first, ack.end)
    acked.add(ack.first, ack.end)
    if key in ledger.tried:
        ledger.tried[key].drop(ack.first, ack.end)
    if ledger.listener is not None:
        ledger.listener.acked(ack)
