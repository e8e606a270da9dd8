"""Makes the golden directories of a format version: `python -m tests.data.make_golden`.

Run it once for a version of the format, when that version is new, and never again for the
same: what lies in tests/data/v1 was written by the fmq of that day, and every later one must
read it. Hence it makes only those that are not there.

In `v1` there are two directories: `closed`, after several lives and a retention; and `killed`,
which was never closed and ends in the first bytes of an append. `v1-bound` came later, with what
format 1 had learned since: a PREPARE says that it is bound to a database, and one phase has none.
What each holds is in expected.json, and is compared with what was sent before it is written down.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import fmq
from fmq.store.record import FORMAT
from fmq.testing import CrashDisk, FakeClock
from tests.bind.shop import PRODUCER, connect
from tests.golden import DATA, EXPECTED, Seen, as_text, seen

TOPICS = {"orders": 2, "emails": 1, "audit": 1}
FIRST_LIFE: dict[str, Any] = {"segment_bytes": 4096, "retain_bytes": 2 * 4096}
SECOND_LIFE: dict[str, Any] = {
    "segment_bytes": 4096,
    "compress_bytes_min": 200,
    "reference_bytes_min": 64,
    "relocate_bytes": 2 * 4096,
}
KILLED: dict[str, Any] = {"segment_bytes": 2048, "checkpoint_bytes": 1800}
BOUND: dict[str, Any] = {"segment_bytes": 4096, "compress_bytes_min": 200}
TORN_BYTES = 100
LINE = 400

Files = dict[str, bytes]


def opened(disk: CrashDisk, clock: FakeClock, chosen: dict[str, Any]) -> fmq.Engine:
    usual: dict[str, Any] = {"topic_queues": TOPICS, "checkpoint_bytes": 2000}
    options = fmq.Options(**(usual | chosen))
    return fmq.open("data", options, disk=disk, clock=clock, background=False)


def text(name: str, size: int) -> bytes:
    """Printable, and nothing that lz4 makes smaller."""
    data = b""
    while len(data) < size:
        data += sha256(b"%s %d" % (name.encode(), len(data))).hexdigest().encode()
    return data[:size]


# --- closed ---------------------------------------------------------------------------------


def first_life(engine: fmq.Engine, clock: FakeClock) -> None:
    """Fill segments until retention has dropped the first, and all that is known of it is in a
    STATE record.
    """
    engine.send("audit", b"started", producer="story")
    with engine.transaction(tx_id="gone", producer="checkout") as tx:
        tx.send("orders", b"of long ago", queue=1)
    with engine.consumer(["audit", "orders"], group="early") as consumer:
        for i in range(6):
            clock.advance(60)
            engine.send_many("audit", [text(f"filler {i} {j}", 280) for j in range(5)])
            while deliveries := consumer.poll(limit=10):
                for delivery in deliveries:
                    delivery.ack()
    assert engine.stats().first_position > 0


def second_life(engine: fmq.Engine, clock: FakeClock) -> None:
    """Send, commit, roll back, prepare, ack, relocate, over some segments."""
    engine.send_many("audit", [b"%04d" % i for i in range(12)])
    engine.send("audit", b"\0" * 900, headers={"": "", "größe": "900"})
    moved = engine.transaction(tx_id="moved", producer="story", check_after=9.5)
    moved.send_many("orders", [b"moved %d" % i for i in range(3)], queue=1)
    moved.prepare()
    _decide_some(engine)
    clock.advance(1)
    _consume(engine, clock)
    for i in range(6):
        clock.advance(0.5)
        engine.send_many("audit", [b"%d" % i * (10 + i), text(f"more {i}", 1200), b""])
    assert engine.decide("by-copy", "commit").receipts, "it was prepared segments ago"
    engine.decide("moved", "commit", decided_by="night shift", reason="nobody knew")
    with engine.consumer("emails", group="mailer") as consumer:
        waiting = engine.transaction(tx_id="waiting", producer="checkout")
        waiting.send("emails", b"do not send yet", key="c-9", tag="held", headers={"to": "é"})
        waiting.send("orders", b"do not pack yet", queue=0)
        for delivery in consumer.poll(limit=2):
            waiting.ack(delivery)
        waiting.prepare()


def _decide_some(engine: fmq.Engine) -> None:
    with engine.transaction(tx_id="at-once", producer="checkout") as tx:
        for i in range(4):
            trace = {"trace": f"{i:x}"}
            tx.send("orders", b"order %d" % i, key=f"c-{i}", tag="paid", headers=trace)
        tx.send_many("emails", [b"receipt", fmq.Message(b"copy", headers={"to": "é"})])
    tx = engine.transaction(tx_id="rolled-back")
    tx.send("emails", b"never seen")
    tx.prepare()
    engine.decide("rolled-back", "rollback", reason="ticket 4711", decided_by="ops")
    tx = engine.transaction(tx_id="by-reference")
    tx.send("orders", bytes(range(100, 200)), queue=0)
    tx.send("orders", b"packed " * 60, queue=1)
    tx.send("emails", b"small")
    tx.prepare()
    tx.commit()
    tx = engine.transaction(tx_id="by-copy")
    tx.send("orders", bytes(range(150)), queue=0)
    tx.prepare()


def _consume(engine: fmq.Engine, clock: FakeClock) -> None:
    with engine.consumer(["orders", "emails"], group="billing") as consumer:
        while deliveries := consumer.poll():
            for delivery in deliveries:
                if delivery.offset % 2:
                    delivery.ack()
        clock.advance(31)
        batch = consumer.poll_batch()
        assert batch is not None
        batch.ack()
        with engine.transaction(tx_id="one-done") as tx:
            for delivery in consumer.poll(limit=1):
                tx.ack(delivery)
            tx.send("audit", b"one was done")


CLOSED_SENT = {
    "audit/0": [
        *([text(f"filler {i} {j}", 280) for i in range(6) for j in range(5)]),
        *(b"%04d" % i for i in range(12)),
        b"\0" * 900,
        b"one was done",
        *(body for i in range(6) for body in (b"%d" % i * (10 + i), text(f"more {i}", 1200), b"")),
    ],
    "emails/0": [b"receipt", b"copy", b"small"],
}


def make_closed() -> tuple[Files, Seen]:
    disk, clock = CrashDisk(), FakeClock()
    with opened(disk, clock, FIRST_LIFE) as engine:
        first_life(engine, clock)
    with opened(disk, clock, SECOND_LIFE) as engine:
        second_life(engine, clock)
    asked = {
        "outcomes": [
            "gone", "at-once", "by-reference", "rolled-back", "by-copy", "moved", "one-done",
            "waiting", "never heard of",
        ],
        "not acked": ["early", "billing", "mailer", "new"],
    }  # fmt: skip
    shown = look(disk, asked)
    for place, bodies in CLOSED_SENT.items():
        got = [message["body"] for message in shown["queues"][place]["messages"]]
        assert got == [as_text(body) for body in bodies][-len(got) :], place
    assert shown["outcomes"]["gone"] == "UnknownTransaction"
    assert [each["tx_id"] for each in shown["undecided"]] == ["waiting"]
    return files_of(disk), shown


# --- killed ---------------------------------------------------------------------------------


def make_killed() -> tuple[Files, Seen]:
    disk, clock = CrashDisk(), FakeClock()
    engine = opened(disk, clock, KILLED)
    sent = [text(f"before {i}", 400) for i in range(5)]
    for body in sent:
        engine.send("audit", body)
    tx = engine.transaction(tx_id="killed-waiting")
    tx.send("orders", b"do not pack yet", queue=1)
    tx.prepare()
    with engine.consumer("audit", group="billing") as consumer:
        consumer.poll(limit=1)[0].ack()
    engine.send("audit", b"the last that was acknowledged")
    before = files_of(disk)
    engine.send("audit", text("torn", 300))
    files = _torn(before, files_of(disk))
    engine.close()
    asked = {"outcomes": ["killed-waiting"], "not acked": ["billing", "new"]}
    shown = look(disk_of(files), asked)
    got = [message["body"] for message in shown["queues"]["audit/0"]["messages"]]
    assert got == [as_text(body) for body in [*sent, b"the last that was acknowledged"]]
    return files, shown


def _torn(before: Files, after: Files) -> Files:
    """`before`, and of what the last append changed only its first bytes."""
    (name,) = (name for name in after if before.get(name) != after[name])
    (start, *_) = (i for i in range(len(after[name])) if before[name][i] != after[name][i])
    end = start + TORN_BYTES
    return before | {name: after[name][:end] + before[name][end:]}


# --- bound ----------------------------------------------------------------------------------


class Shop(sqlite3.Connection):
    """A database whose commits take a while; `ends`: and in that its program is told to end."""

    clock = FakeClock()
    ends = False

    def commit(self) -> None:
        self.clock.advance(0.25)
        super().commit()
        if self.ends:
            raise KeyboardInterrupt


def bound_life(engine: fmq.Engine, clock: FakeClock, shop: Shop) -> None:
    """In one phase with messages, with an ACK, with nothing else, with nothing at all; and bound,
    decided and not.
    """
    with engine.transaction(tx_id="at-once", producer="story") as tx:
        trace = {"trace": "9f", "größe": ""}
        tx.send("orders", b"order 1", queue=0, key="c-1", tag="paid", headers=trace)
        tx.send_many("orders", [b"packed " * 60, b""], queue=1)
    clock.advance(1)
    engine.send_many("audit", [b"first", b"the second", b"third"])
    with engine.consumer("audit", group="billing") as consumer:
        alone, inside, only = consumer.poll(limit=3)
        alone.ack()
        clock.advance(1)
        with engine.transaction(tx_id="acks") as tx:
            tx.ack(inside)
            tx.send("emails", b"one was done")
        with engine.transaction(tx_id="only-acks") as tx:
            tx.ack(only)
    with engine.transaction(tx_id="nothing"):
        pass
    _place(engine, shop, "bound")
    shop.ends = True
    with suppress(KeyboardInterrupt):
        _place(engine, shop, "waiting")


def _place(engine: fmq.Engine, shop: Shop, order: str) -> None:
    with (
        engine.transaction(tx_id=order, producer=PRODUCER, check_after=9.5, bind=shop) as tx,
        engine.consumer("orders", group="packing") as consumer,
    ):
        shop.execute("INSERT INTO orders VALUES (?)", (order,))
        for delivery in consumer.poll(limit=1):
            tx.ack(delivery)
        tx.send("orders", order.encode(), queue=0, key="c-2")
        tx.send("emails", b"receipt", tag="held", headers={"to": "é"})


BOUND_SENT = {
    "audit/0": [b"first", b"the second", b"third"],
    "emails/0": [b"one was done", b"receipt"],
    "orders/0": [b"order 1", b"bound"],
    "orders/1": [b"packed " * 60, b""],
}


def make_bound() -> tuple[Files, Seen]:
    disk, clock = CrashDisk(), FakeClock()
    with TemporaryDirectory() as folder, closing(connect(Path(folder), Shop)) as shop:
        assert isinstance(shop, Shop)
        shop.clock = clock
        with opened(disk, clock, BOUND) as engine:
            bound_life(engine, clock, shop)
    asked = {
        "outcomes": ["at-once", "acks", "only-acks", "nothing", "bound", "waiting"],
        "not acked": ["billing", "packing", "new"],
    }
    shown = look(disk, asked)
    for place, bodies in BOUND_SENT.items():
        got = [message["body"] for message in shown["queues"][place]["messages"]]
        assert got == [as_text(body) for body in bodies], place
    assert [each["tx_id"] for each in shown["undecided"]] == ["waiting"]
    return files_of(disk), shown


# --- as files -------------------------------------------------------------------------------


def look(disk: CrashDisk, asked: Seen) -> Seen:
    """What a copy of the directory shows."""
    with fmq.open("data", disk=disk_of(files_of(disk))) as engine:
        return seen(engine, asked)


def files_of(disk: CrashDisk) -> Files:
    directory = disk.directory("data", make=False)
    files = {}
    for name in directory.names():
        file = directory.open(name)
        files[name] = file.read(0, file.size())
    return files


def disk_of(files: Files) -> CrashDisk:
    disk = CrashDisk()
    directory = disk.directory("data", make=True)
    for name, content in files.items():
        directory.create(name).write(0, (content,), sync=True)
    directory.sync()
    return disk


GOLDEN: dict[str, dict[str, Callable[[], tuple[Files, Seen]]]] = {
    f"v{FORMAT}": {"closed": make_closed, "killed": make_killed},
    f"v{FORMAT}-bound": {"closed": make_bound},
}


def main(say: Callable[[str], None] = print) -> None:
    new = [name for name in GOLDEN if not (DATA / name).exists()]
    if not new:
        raise SystemExit("all are there: a golden directory is made once, and kept for ever")
    for name in new:
        place, expected = DATA / name, {}
        for life, make in GOLDEN[name].items():
            files, expected[life] = make()
            save(place / life, files)
        (place / EXPECTED).write_text(as_json(expected) + "\n", encoding="utf-8")
        size = sum(file.stat().st_size for file in place.rglob("*") if file.is_file())
        say(f"{place}: {size:,} B")


def save(place: Path, files: Files) -> None:
    """Write the files, all but one of the spares, which are zeros."""
    place.mkdir(parents=True)
    spares = sorted(name for name in files if name.endswith(".spare"))
    for name in files.keys() - spares[1:]:
        (place / name).write_bytes(files[name])


def as_json(what: Any, indent: str = "\n") -> str:
    """JSON to be read: what fits a line stands on one."""
    line = json.dumps(what, ensure_ascii=False)
    if not isinstance(what, (dict, list)) or len(indent + line) <= LINE:
        return line
    inner = indent + " "
    if isinstance(what, list):
        return "[" + ",".join(inner + as_json(each, inner) for each in what) + indent + "]"
    pairs = (f"{json.dumps(name)}: {as_json(value, inner)}" for name, value in what.items())
    return "{" + ",".join(inner + pair for pair in pairs) + indent + "}"


if __name__ == "__main__":
    main()
