"""Compares what is there at the end of a story with what its clients were promised.

What a disk shows is looked at once. What the server has handed out is not on the disk, so each time
all that is not acked is asked for: no client holds it any more.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import fmq
from crash_tests.engines import PATH, let_go
from crash_tests.oracle import Violation
from crash_tests.transport.server import LONG, BreakingServer
from fmq.basics.message import Receipt
from fmq.consume.calls.consumer import Consumer
from fmq.consume.claims.backoff import DEFAULT
from fmq.consume.claims.delivery import Delivery
from fmq.consume.claims.handed import range_of
from fmq.engines.engine import Engine
from fmq.store.bytes.internal import is_internal
from fmq.testing import FakeClock
from fmq.testing.inside import inside

QUEUES = (("a", 0), ("b", 0), ("b", 1), ("h", 0))
GROUPS = {"g0": ["a", "b"], "g1": ["a", "b"], "herd": ["h"]}
WAIT_SECONDS_MAX = 60.0  # with the time by which the clock was set back
Content = dict[str, Any]
# Topic, queue and offset of a message: two messages of a transaction may have equal bodies.
Place = tuple[str, int, int]
Promised = list[tuple[Receipt, list[bytes]]]


class Looks:
    """What was found at the ends of one story, by disk."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Content | None, Promised]] = {}

    def at_end(self, server: BreakingServer, clock: FakeClock, promised: Promised) -> Content:
        """Return what is there. No client is connected any more. Raises Violation."""
        engine, disk = server.engine, server.disk.fingerprint()
        known, kept = self._known.get(disk, (None, []))
        content = _shown(engine) if known is None else known
        if promised != kept:
            for receipt, bodies in promised:
                _check_receipt(engine, receipt, bodies)
        rejected = {
            # Only their number is compared: after a lost answer, messages may come in another
            # order.
            f"{group} has rejected": _check_rest(
                engine, clock, group, content[group], server.set_back
            )
            for group in GROUPS
        }
        if known is not None:
            let_go(engine, server.disk)
            return content | rejected
        server.close()
        engine.close()
        problems = fmq.check(PATH, disk=server.disk).problems
        if problems:
            raise Violation("I10", f"{problems}")
        self._known[disk] = content, promised
        return content | rejected


def _shown(engine: Engine) -> Content:
    content: Content = {"undecided": [each.tx_id for each in engine.undecided()]}
    for topic, queue in QUEUES:
        messages = engine.read(topic, queue=queue, limit=999)
        content[f"{topic}/{queue}"] = [each.body.decode() for each in messages]
    content["m"] = engine.mark("m")
    for group in GROUPS:
        known = [each for each in engine.groups() if each.group == group]
        content[group] = sum(each.acked_below + each.acked_beyond for each in known)
    return content


def _check_receipt(engine: Engine, receipt: Receipt, bodies: list[bytes]) -> None:
    topic, queue, offset = receipt.topic, receipt.queue, receipt.offset
    found = engine.read(topic, queue=queue, offset=offset, limit=len(bodies))
    if [each.body for each in found] != bodies:
        raise Violation("I1", f"{topic}/{queue} from {offset} has {found}, not {bodies}")


def _check_rest(engine: Engine, clock: FakeClock, group: str, acked: int, set_back: float) -> int:
    """Return how many messages were rejected, whether replayed or not. Raises Violation unless all
    that are not acked come at once.
    """
    topics = GROUPS[group]
    there = sum(each.next - each.first for each in engine.queues() if each.topic in topics)
    with engine.consumer(topics, group=group, lease_seconds=LONG) as consumer:
        letters = engine.dead_letters(group).list()
        taken, rejected = 0, [(each.topic, each.queue, each.offset) for each in letters]
        for found in _polls(engine, consumer, clock, group, WAIT_SECONDS_MAX + set_back):
            replayed = [each for each in found if is_internal(range_of(each)[0].queue.topic)]
            again = [(each.topic, each.queue, each.offset) for each in replayed]
            taken, rejected = taken + len(found) - len(again), rejected + again
    if acked + taken != there:
        raise Violation("I7", f"{group} has acked {acked} of {there}, and {taken} come again")
    if len(set(rejected)) != len(rejected):
        raise Violation("I7", f"{group} has rejected {rejected}, one of them twice")
    return len(rejected)


def _polls(
    engine: Engine, consumer: Consumer, clock: FakeClock, group: str, most: float
) -> Iterator[list[Delivery]]:
    """Yield the messages that come at once, and then those that wait because their attempts failed
    twice.
    """
    # An attempt that was given back uncounted does not count, but its message waits as if it did.
    waits = [0.0]
    for (name, *_), known in inside(engine).ledger.tried.items():
        for _, _, count, due_us in known.all() if name == group else ():
            waits += [DEFAULT.delay(count + 1), (due_us - clock.time_us()) / 1_000_000]
    for seconds in (0.0, min(max(waits), most)):
        clock.advance(seconds)
        while found := consumer.poll(limit=99):
            yield found
