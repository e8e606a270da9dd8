"""A workload with everything in it, and all that can be seen of it afterwards."""

from __future__ import annotations

from typing import Any

from fmq import Engine
from fmq.consume.calls.consumer import member_of
from fmq.consume.claims.poll import Poll
from fmq.errors import UnknownTransaction
from fmq.machine.disk import Disk
from tests.small import CrashDisk, fill, opened

IDS = ("at once", "early", "late", "open", "dropped", "never")
OPTIONS: dict[str, Any] = {"queues": 2, "reference_bytes_min": 100, "checkpoint_bytes": 3000}


def work(engine: Engine) -> None:
    """Every kind of record, over several segments, some of it undecided at the end."""
    with engine.transaction(tx_id="at once") as tx:
        tx.send("t", b"0", queue=0)
        tx.send_many("t", [b"1", b"2"], queue=1)
    for tx_id in ("early", "late", "open", "dropped"):
        tx = engine.transaction(tx_id=tx_id, producer="p")
        tx.send("t", b"L" * 150, queue=0)
        tx.send("u", tx_id.encode(), queue=1)
        tx.prepare()
    engine.decide("early", "commit")
    fill(engine)
    with engine.consumer("t", group="g") as consumer:
        for delivery in consumer.poll(limit=1) + consumer.poll(limit=1):
            delivery.ack()
    engine.decide("late", "commit", reason="it was time")
    fill(engine)
    engine.decide("dropped", "rollback")
    engine.send("t", b"last", queue=0)


def finished(**options: Any) -> CrashDisk:
    """A directory in which the work was done, closed in order."""
    disk = CrashDisk()
    with opened(disk, **OPTIONS, **options) as engine:
        work(engine)
    return disk


def interrupted(**options: Any) -> CrashDisk:
    """The same, killed instead."""
    disk = CrashDisk()
    with opened(disk, **OPTIONS, **options) as engine:
        work(engine)
        return disk.after_kill()


def seen(engine: Any) -> dict[str, object]:
    """Everything that an engine shows, but for what a consumer would get."""
    outcomes: dict[str, object] = {}
    for tx_id in IDS:
        try:
            outcomes[tx_id] = engine.outcome(tx_id)
        except UnknownTransaction:
            outcomes[tx_id] = None
    return {
        "queues": engine.queues(),
        "groups": engine.groups(),
        "messages": {
            (info.topic, info.queue): engine.read(
                info.topic, queue=info.queue, offset=info.first, limit=9999
            )
            for info in engine.queues()
        },
        "undecided": engine.undecided(),
        "outcomes": outcomes,
    }


def consumable(engine: Engine) -> list[tuple[int, int]]:
    """Return what group `g` has not acked of topic `t`. Give all of it back."""
    with engine.consumer("t", group="g", lease_seconds=1e6) as consumer:
        found: list[Any] = []
        # Not a poll, which would write that it tries them.
        member = member_of(consumer)
        while claimed := member.drive(member.taking(Poll(member.clock, 100, 600.0))):
            _, pieces = claimed
            found += [(each.queue, each.offset) for piece in pieces for each in piece]
    return sorted(found)


def sight(disk: Disk, **options: Any) -> dict[str, object]:
    """Return what an engine shows that is opened now."""
    with opened(disk, **OPTIONS, **options) as engine:
        return {**seen(engine), "consumable": consumable(engine)}
