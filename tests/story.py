"""One store with everything in it: every kind of record, and what is to be seen of it afterwards.

The damage tests break it, the hostile ones forge it, and a copy of it stays for ever as the
golden directory of its format.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import fmq
from fmq.errors import FmqError
from fmq.machine.disk import Disk
from fmq.testing import CrashDisk, FakeClock

SEGMENT_BYTES = 4096
TOPICS = {"orders": 2, "emails": 1, "audit": 1}
GROUP = "billing"
IDS = ("at-once", "by-reference", "by-copy", "rolled-back", "moved", "waiting")

Look = dict[str, Any]
Files = dict[str, bytes]


def options(**more: Any) -> fmq.Options:
    """Small segments, and everything that is optional in use."""
    usual: dict[str, Any] = {
        "segment_bytes": SEGMENT_BYTES,
        "topic_queues": TOPICS,
        "compress_bytes_min": 200,
        "reference_bytes_min": 64,
        "checkpoint_bytes": 2000,
        "relocate_bytes": 2 * SEGMENT_BYTES,
    }
    return fmq.Options(**(usual | more))


def tell(engine: fmq.Engine, clock: FakeClock) -> None:
    """Send, commit, roll back, prepare, ack, relocate, over some segments."""
    engine.send("audit", b"started", producer="story")
    engine.send_many("audit", [b"%04d" % i for i in range(12)])
    engine.send("audit", b"\0" * 900)
    moved = engine.transaction(tx_id="moved", producer="story", check_after=9.5)
    moved.send_many("orders", [b"moved %d" % i for i in range(3)], queue=1)
    moved.prepare()
    _decide_some(engine)
    clock.advance(1)
    _consume(engine)
    noise = Random("noise")
    for i in range(14):
        clock.advance(0.5)
        engine.send_many("audit", [b"%d" % i * (10 + i), noise.randbytes(520), b""])
    copied = engine.decide("by-copy", "commit")
    assert copied.receipts, "it was prepared segments ago"
    engine.decide("moved", "commit", decided_by="night shift")
    waiting = engine.transaction(tx_id="waiting")
    waiting.send("emails", b"do not send yet", key="c-9")
    waiting.prepare()


def _decide_some(engine: fmq.Engine) -> None:
    with engine.transaction(tx_id="at-once", producer="checkout") as tx:
        for i in range(4):
            tx.send(
                "orders", b"order %d" % i, key=f"c-{i}", tag="paid", headers={"trace": f"{i:x}"}
            )
        tx.send_many("emails", [b"receipt", fmq.Message(b"copy", headers={"to": "é"})])
    tx = engine.transaction(tx_id="by-reference")
    tx.send("orders", bytes(range(100, 200)), queue=0)
    tx.send("emails", b"small")
    tx.prepare()
    tx.commit()
    tx = engine.transaction(tx_id="rolled-back")
    tx.send("emails", b"never seen")
    tx.prepare()
    engine.decide("rolled-back", "rollback", reason="ticket 4711", decided_by="ops")
    tx = engine.transaction(tx_id="by-copy")
    tx.send("orders", bytes(range(150)), queue=0)
    tx.prepare()


def _consume(engine: fmq.Engine) -> None:
    with engine.consumer(["orders", "emails"], group=GROUP) as consumer:
        for delivery in consumer.poll(limit=2):
            delivery.ack()
        with engine.transaction() as tx:
            for delivery in consumer.poll(limit=1):
                tx.ack(delivery)
            tx.send("audit", b"one was done")


def last_words(engine: fmq.Engine) -> None:
    """One append more: after an unclean end, the only one that damage may cost."""
    engine.send("audit", b"the last group")


def look(engine: fmq.Engine | fmq.ReadOnlyEngine) -> Look:
    """Everything that a user can see, a name each; what cannot be read is its FmqError."""
    seen: Look = {}
    for info in engine.queues():
        name = f"{info.topic}/{info.queue}"
        seen[name] = _try(partial(_queue, engine, info))
    seen["undecided"] = _try(lambda: [_plain(tx) for tx in engine.undecided()])
    for tx_id in IDS:
        seen[f"outcome {tx_id}"] = _try(partial(_outcome, engine, tx_id))
    if isinstance(engine, fmq.Engine):
        seen["unacked"] = _try(partial(_unacked, engine))
    return seen


def _try(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except FmqError as error:
        return error


def _queue(engine: fmq.Engine | fmq.ReadOnlyEngine, info: fmq.QueueInfo) -> list[Any]:
    found = engine.read(info.topic, queue=info.queue, offset=info.first, limit=100_000)
    assert [message.offset for message in found] == list(range(info.first, info.next))
    return [
        [message.offset, bytes(message.body).hex(), message.key, message.tag,
         dict(message.headers or {}), message.tx_id, message.producer, str(message.time)]
        for message in found
    ]  # fmt: skip


def _outcome(engine: fmq.Engine | fmq.ReadOnlyEngine, tx_id: str) -> list[str]:
    return _plain(engine.outcome(tx_id))


def _plain(what: Any) -> list[str]:
    """Every field of a frozen dataclass of ours."""
    return [f"{name}={getattr(what, name)!s}" for name in type(what).__slots__]


def _unacked(engine: fmq.Engine) -> list[list[Any]]:
    with engine.consumer(list(TOPICS), group=GROUP) as consumer:
        found = []
        while deliveries := consumer.poll(limit=1000):
            found += [[each.topic, each.queue, each.offset] for each in deliveries]
    return sorted(found)


# --- as files that can be broken ------------------------------------------------------------


def files_of(disk: Disk, path: str = "data") -> Files:
    """The files of the directory; what lies in quarantine is left out."""
    directory = disk.directory(path, make=False)
    files = {}
    for name in directory.names():
        if name != "quarantine":
            file = directory.open(name)
            files[name] = file.read(0, file.size())
            file.close()
    directory.close()
    return files


def disk_of(files: Files) -> CrashDisk:
    """A disk in memory with just these files in its directory `data`."""
    disk = CrashDisk()
    directory = disk.directory("data", make=True)
    for name, content in files.items():
        file = directory.create(name)
        file.write(0, (content,), sync=True)
        file.close()
    directory.sync()
    directory.close()
    return disk


def open_disk(disk: Disk, clock: FakeClock | None = None, **more: Any) -> fmq.Engine:
    """An engine without a thread, so that the same calls give the same bytes."""
    return fmq.open(
        "data", options(**more), disk=disk, clock=clock or FakeClock(), background=False
    )
