"""The steps that read messages: without a group, and as a group that acks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crash_tests.carry_on import call, plain
from crash_tests.oracle import Place, Unit
from crash_tests.workload import GROUPS
from fmq.consume.calls.consumer import Consumer
from fmq.consume.claims.delivery import Delivery, DeliveryBatch

if TYPE_CHECKING:
    from crash_tests.run import Run


def _consumer(run: Run, group: str) -> Consumer:
    if group not in run.consumers:
        run.consumers[group] = run.live.consumer(GROUPS[group], group=group)
    return run.consumers[group]


def poll(run: Run, group: str, limit: int) -> list[Delivery]:
    """Return the messages that the group gets, which count as shown from now on."""
    found = _consumer(run, group).poll(limit=limit)
    _polled(run, group)
    for each in found:
        run.oracle.shown((each.topic, each.queue), each.offset, each.body, to=group)
    return found


def _polled(run: Run, group: str) -> None:
    floors = {(each.topic, each.queue): each.first for each in run.live.queues()}
    run.oracle.polled(group, floors)


def consume(run: Run, group: str, limit: int, acks: int) -> None:
    found: list[Delivery] = []
    if not plain(run, lambda: found.extend(poll(run, group, limit))):
        return
    for i, each in enumerate(found[:acks]):
        place = each.topic, each.queue, each.offset
        if not _ack(run, f"ack {run.at}.{i}", group, [place], each):
            return


def _ack(
    run: Run, name: str, group: str, places: list[Place], lease: Delivery | DeliveryBatch
) -> bool:
    run.oracle.trying(Unit(name, {}, tuple((group, place) for place in places)))
    return call(run, name, lease.ack) is not None


def batch(run: Run, group: str, limit: int) -> None:
    found: list[DeliveryBatch] = []

    def poll_batch() -> None:
        got = _consumer(run, group).poll_batch(limit=limit)
        if got is not None:
            _polled(run, group)
            for offset, body in enumerate(got.bodies, got.offset):
                run.oracle.shown((got.topic, got.queue), offset, body, to=group)
            found.append(got)

    if plain(run, poll_batch) and found:
        got = found[0]
        places = [(got.topic, got.queue, got.offset + i) for i in range(len(got))]
        _ack(run, f"ack {run.at}", group, places, got)


def read(run: Run, topic: str, queue: int) -> None:
    def read_all() -> None:
        known = {(each.topic, each.queue): each for each in run.live.queues()}
        lane = known.get((topic, queue))
        if lane is None:
            return
        for message in run.live.read(topic, queue=queue, offset=lane.first):
            assert message.offset is not None
            run.oracle.shown((topic, queue), message.offset, bytes(message.body))

    plain(run, read_all)
