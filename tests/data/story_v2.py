"""What is done in the golden directories of format 2: each part uses a part of the format.

`everything` is done three times: of the first, retention leaves only what it carries over; the
second is before it and kept; the third comes after it. Times are those of the clock that is given.
"""

from __future__ import annotations

from datetime import timedelta
from hashlib import sha256

import fmq
from fmq import filters
from fmq.basics.clock import as_datetime
from fmq.consume.administration import group_changes
from fmq.steps.thread_driver import drive
from fmq.store.bytes.content import encode_messages
from fmq.store.bytes.extension import Request, extension_of
from fmq.store.bytes.kinds import MESSAGE, TIMER, AckRange, Acks, Run
from fmq.store.bytes.timing import Timing, with_timing
from fmq.testing import FakeClock
from fmq.testing.inside import inside
from fmq.tx.ledger.timers import Bounds

CLIENT = bytes(range(16))
HOUR = 3600.0
DAY = 24 * HOUR
LONG = ("of a long name " * 17)[:252]  # so long that the topic of its dead letters has a digest
FEW = Bounds(near=8, noted=2)  # so that a few timers make a file


def text(name: str, size: int) -> bytes:
    """Printable, and nothing that lz4 makes smaller."""
    data = b""
    while len(data) < size:
        data += sha256(b"%s %d" % (name.encode(), len(data))).hexdigest().encode()
    return data[:size]


def everything(engine: fmq.Engine, clock: FakeClock, time: int) -> None:
    """Do each part once. `time` counts how often this was done, from 1."""
    inside(engine).ledger.timers.bounds = FEW
    messages(engine, time)
    transactions(engine, time)
    clock.advance(0.5)
    consume(engine, time)
    work(engine, clock, time)
    extras(engine, clock, time)
    delayed(engine, clock, time)
    change_groups(engine, time)
    change_topics(engine, clock, time)
    be_a_client(engine, clock, time)
    clock.advance(1)


def messages(engine: fmq.Engine, time: int) -> None:
    """Send with each column of a message, and without any."""
    engine.send("audit", b"begin %d" % time, producer="story")
    engine.send_many("audit", [b"%04d" % i for i in range(12)])
    engine.send("audit", b"\0" * 900, headers={"": "", "größe": "900"})
    trace = {"trace": f"9f-{time}", "größe": ""}
    engine.send("orders", b"order", queue=1, key=f"c-{time}", tag="paid", headers=trace)


def transactions(engine: fmq.Engine, time: int) -> None:
    """Commit in one phase and in two, by reference and by copy, and roll back; with marks."""
    with engine.transaction(tx_id=f"at-once-{time}", producer="checkout") as tx:
        for i in range(4):
            tx.send("orders", b"order %d" % i, key=f"c-{i}", tag=("paid", "refunded")[i % 2])
        tx.send_many("emails", [b"receipt", fmq.Message(b"copy", headers={"to": "é"}), b""])
        tx.send("orders", b"first of all %d" % time, priority=9, message_id=f"first-{time}")
        tx.mark("source", 70 + time, b"\x01\xff")
        tx.mark("passing", time)
    with engine.transaction(tx_id=f"only-marks-{time}") as tx:
        tx.unmark("passing")
    with engine.transaction(tx_id=f"nothing-{time}"):
        pass
    tx = engine.transaction(tx_id=f"rolled-back-{time}")
    tx.send("emails", b"never seen", message_id=f"free-again-{time}")
    tx.prepare()
    which = f"rolled-back-{time}"
    engine.decide(which, "rollback", reason="ticket 4711", decided_by="ops")
    tx = engine.transaction(tx_id=f"two-phases-{time}", producer="checkout")
    tx.send("orders", bytes(range(100, 200)), queue=0, priority=3, message_id=f"two-{time}")
    tx.send("orders", b"packed %d " % time * 60, queue=1)
    tx.send("emails", b"small")
    tx.send("emails", b"waits at first, %d" % time, delay=2)
    tx.mark("cursor", time)
    tx.prepare()
    tx.commit()


def consume(engine: fmq.Engine, time: int) -> None:
    """Ack some by themselves, one batch, and some in transactions."""
    with engine.consumer(["orders", "emails"], group="billing") as consumer:
        for delivery in consumer.poll(limit=3):
            if delivery.offset % 2:
                delivery.ack()
        batch = consumer.poll_batch(limit=2)
        assert batch is not None
        batch.ack()
        with engine.transaction(tx_id=f"acks-{time}") as tx:
            for delivery in consumer.poll(limit=1):
                tx.ack(delivery)
            tx.send("audit", b"one was done")
        with engine.transaction(tx_id=f"only-acks-{time}") as tx:
            for delivery in consumer.poll(limit=1):
                tx.ack(delivery)


def work(engine: fmq.Engine, clock: FakeClock, time: int) -> None:
    """Try, give back until a time, reject; replay, purge and keep dead letters."""
    engine.send_many("jobs", [b"job %d of %d" % (i, time) for i in range(9)], queue=0)
    with engine.consumer("jobs", group="workers") as consumer:
        deliveries = []
        while found := consumer.poll(limit=20):
            deliveries += [each for each in found if each.message.queue == 0]
        jobs = {each.body: each for each in deliveries}
        mine = [jobs[b"job %d of %d" % (i, time)] for i in range(9)]
        mine[0].ack()
        mine[1].release(delay=HOUR)
        mine[2].release(delay=HOUR, count=False)
        mine[3].release()
        for i in range(4, 8):
            mine[i].reject(f"no such address: {i}")
    dead = engine.dead_letters("workers")
    before, _, purged, _ = dead.list()[-4:]
    assert dead.replay(before.number) == 1
    assert dead.purge(purged.number) == 1
    clock.advance(1)
    with engine.consumer("jobs", group="workers", retry=fmq.Retry(2)) as consumer:
        for delivery in consumer.poll(limit=1):
            delivery.release(delay=60)


def extras(engine: fmq.Engine, clock: FakeClock, time: int) -> None:
    """Send with ids, again with the same ids, with priorities, and with expiries that pass."""
    engine.send("orders", b"once %d" % time, queue=0, message_id=f"once-{time}")
    engine.send("orders", b"a repeat", queue=0, message_id=f"once-{time}")
    soon, late = (as_datetime(clock.time_us()) + timedelta(seconds=each) for each in (2, DAY))
    engine.send_many(
        "tasks",
        [
            fmq.Message(b"plain %d" % time),
            fmq.Message(b"stale %d" % time, expires_at=soon, priority=2),
            fmq.Message(b"urgent %d" % time, priority=9, message_id=f"urgent-{time}"),
            fmq.Message(b"of a day %d" % time, expires_at=late, key="day"),
        ],
    )
    clock.advance(3)
    with engine.consumer("tasks", group="machines") as consumer:
        consumer.poll(limit=1)[0].reject("too hot")
        for delivery in consumer.poll(limit=1):
            delivery.ack()
        consumer.poll(limit=100)


def delayed(engine: fmq.Engine, clock: FakeClock, time: int) -> None:
    """Let messages wait for their time: some are published, one is recalled, the others wait on."""
    engine.send_many("emails", [b"in a second", b"with it"], delay=1)
    engine.send("emails", b"later %d" % time, delay=1, message_id=f"later-{time}", tag="held")
    recalled = engine.send("emails", b"never mind", delay=DAY)
    for days in range(1, 4):
        body = b"in %d days, %d " % (days, time) * (1, 4, 40)[days - 1]
        engine.send("emails", body, delay=days * DAY, priority=days, key="wait")
    with engine.transaction(tx_id=f"later-{time}") as tx:
        tx.send("orders", b"in five days, %d" % time, queue=1, delay=5 * DAY, headers={"to": "é"})
    engine.checkpoint()
    assert engine.recall(recalled)
    clock.advance(1.5)
    engine.sync()


def change_groups(engine: fmq.Engine, time: int) -> None:
    """Make groups, move, filter and delete them."""
    name = f"paid-{time}"
    engine.create_group(name, "orders", at="earliest", filter=filters.tags("paid"))
    with engine.consumer("orders", group=name) as consumer:
        for delivery in consumer.poll(limit=2):
            delivery.ack()
    (last,) = (info for info in engine.queues("orders") if info.queue == 0)
    engine.group(name).skip("orders", 0, last.next - 2, count=2)
    engine.group(name).set_filter("orders", filters.sql("trace IS NOT NULL"))
    engine.create_group(f"moved-{time}", "audit", at="latest")
    engine.group(f"moved-{time}").seek("audit", to="earliest")
    engine.group(f"moved-{time}").seek("audit", offset=engine.queues("audit")[0].next - 3)
    engine.create_group("gone", "audit")
    engine.group("gone").delete()
    with engine.consumer("audit", group="all", member="first", broadcast=True) as consumer:
        engine.send("audit", b"to all of you")
        consumer.poll()[0].ack()


def change_topics(engine: fmq.Engine, clock: FakeClock, time: int) -> None:
    """Make topics, let one grow and one forget, delete one and make it again."""
    if time == 1:
        engine.create_topic("news", queues=1, retain_seconds=90)
    engine.topic("news").retain(60 + time)
    engine.topic("jobs").add_queues(1)
    engine.send("news", b"old news %d" % time)
    clock.advance(120)
    engine.send("news", b"news %d" % time)
    engine.send("scratch", b"of an earlier life %d" % time, message_id="scratch")
    with engine.consumer("scratch", group="billing") as consumer:
        consumer.poll()[0].ack()
    engine.topic("scratch").delete()
    engine.send("scratch", b"made again %d" % time, message_id="scratch")


def be_a_client(engine: fmq.Engine, clock: FakeClock, time: int) -> None:
    """Carry out requests of a client in another process, as the server does: it has answers up to
    the first of them.
    """
    parts = inside(engine)
    first = 10 * time
    two = _run_of(MESSAGE, "orders", [fmq.Message(b"by a client"), fmq.Message(b"and %d" % time)])
    two.extension = extension_of(Request(CLIENT, first, 0, requests=2))
    one = _run_of(MESSAGE, "orders", [fmq.Message(b"with extras", priority=5)])
    one.extension = extension_of(Request(CLIENT, first + 2, 2), one.extension)
    later = _run_of(TIMER, "emails", [fmq.Message(b"in four days, %d" % time)])
    timing = Timing(clock.time_us() + round(4 * DAY * 1e6))
    later.extension = extension_of(Request(CLIENT, first + 3, 3), with_timing(b"", timing))
    engine.create_group(f"taker-{time}", "audit")
    end = engine.queues("audit")[0].next
    taken = Acks([AckRange(f"taker-{time}", "audit", 0, end - 2, end)], 0)
    taken.extension = extension_of(Request(CLIENT, first + 6, 6))
    for record in (two, one, later, taken):
        parts.commit_queue.run(parts.writer.send, [record], True)
    tx = engine.transaction(tx_id=f"of-a-client-{time}", producer="client")
    tx._buffer.request = Request(CLIENT, first + 4, 4)
    tx.send("orders", b"in a transaction", queue=1)
    tx.commit()
    moved, asked = f"moved-{time}", Request(CLIENT, first + 5, 5)
    steps = parts.changes.writing(
        group_changes.seek(parts.changes, moved, "audit", None, "latest"), asked
    )
    drive(steps, parts.commit_queue, parts.writer.clock)


def _run_of(kind: int, topic: str, sent: list[fmq.Message]) -> Run:
    run = encode_messages(sent, None)
    run.kind, run.topic = kind, topic
    return run


# --- one time only --------------------------------------------------------------------------


def fill(engine: fmq.Engine, count: int) -> None:
    """Send bodies that fill some segments."""
    for i in range(count):
        engine.send("audit", text(f"filler {i}", 900))


def prepare_some(engine: fmq.Engine) -> None:
    """Leave two transactions undecided, which `decide_some` decides."""
    moved = engine.transaction(tx_id="moved", producer="story", check_after=9.5)
    moved.send_many("orders", [b"moved %d" % i for i in range(3)], queue=1)
    moved.prepare()
    bound = engine.transaction(tx_id="bound", producer="checkout")
    bound._buffer.bound = True  # as all that fmq.bind begins
    bound.send("orders", bytes(range(150)), queue=0)
    bound.prepare()


def decide_some(engine: fmq.Engine) -> None:
    """Decide them, segments later, and leave one undecided that has all a transaction can have."""
    assert engine.decide("bound", "commit").receipts
    engine.decide("moved", "commit", decided_by="night shift", reason="nobody knew")
    with engine.consumer("emails", group="mailer") as consumer:
        waiting = engine.transaction(tx_id="waiting", producer="checkout", check_after=9.5)
        waiting._buffer.bound = True
        waiting._buffer.request = Request(CLIENT, 40, 10)
        waiting.send("emails", b"do not send yet", key="c-9", tag="held", headers={"to": "é"})
        waiting.send("orders", b"do not pack yet", queue=0, message_id="held", priority=1)
        waiting.mark("cursor", 1000)
        for delivery in consumer.poll(limit=2):
            waiting.ack(delivery)
        waiting.prepare()


def killed_life(engine: fmq.Engine, clock: FakeClock) -> None:
    """Some of all, in few segments."""
    for i in range(3):
        engine.send("audit", text(f"before {i}", 400))
    tx = engine.transaction(tx_id="killed-waiting")
    tx.send("orders", b"do not pack yet", queue=1, message_id="held")
    tx.mark("cursor", 3)
    tx.prepare()
    engine.send("orders", b"urgent", queue=0, priority=9, message_id="urgent")
    engine.send("orders", b"in a day", queue=0, delay=DAY)
    with engine.consumer("audit", group="billing") as consumer:
        consumer.poll(limit=1)[0].ack()
    with engine.consumer("audit", group=LONG) as consumer:
        first, second, third = consumer.poll(limit=3)
        first.ack()
        second.reject("in pieces")
        third.release(delay=HOUR)
    clock.advance(1)
    engine.send("audit", b"the last that was acknowledged")
