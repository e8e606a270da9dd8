"""What goes straight from bodies to bytes and to the index is what recovery reads and applies."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fmq
from fmq.cli.walk import Walk
from fmq.errors import StorageFull
from fmq.recovery.layout import look
from fmq.recovery.recover import recover
from fmq.store.kinds import Kind
from fmq.testing import CrashDisk, FakeClock, FaultDisk
from fmq.tx.ledger import Amount, Entry, Ledger

REFERENCE_BYTES_MIN = 64
TOPICS = "one", "three", "later"
# Small ones are kept until their transaction is decided, and copied then; large ones, which lz4
# may make small, are referred to.
BODIES = st.binary(max_size=40) | st.builds(
    bytes.__mul__,
    st.sampled_from([b"z", bytes(range(21))]),
    st.integers(REFERENCE_BYTES_MIN // 21, REFERENCE_BYTES_MIN + 1),
)
TEXTS = st.none() | st.sampled_from(["", "k", "käse"])
HEADERS = st.none() | st.dictionaries(st.sampled_from("ab"), st.sampled_from(["", "x"]), max_size=2)
MESSAGES = BODIES | st.builds(fmq.Message, BODIES, TEXTS, TEXTS, HEADERS)
PLACES = st.sampled_from(
    [("one", None), ("one", 0), ("three", None), ("three", 2), ("later", None)]
)
SENDS = st.tuples(PLACES, MESSAGES)
ENDS = "commit", "roll back", "decide commit", "decide rollback", "leave"
STEPS = (
    st.tuples(st.just("send"), SENDS)
    | st.tuples(st.just("many"), st.tuples(PLACES, st.lists(MESSAGES, max_size=5)))
    | st.tuples(st.just("transaction"), st.tuples(st.lists(SENDS, max_size=6), st.booleans()))
    | st.tuples(
        st.just("two phases"),
        st.tuples(st.lists(SENDS, max_size=3), st.booleans(), st.sampled_from(ENDS)),
    )
    | st.tuples(st.just("decide"), st.tuples(st.sampled_from(["commit", "rollback"])))
    | st.tuples(st.just("ack"), st.tuples(st.integers(1, 3), st.booleans()))
)


# Of records, what only their way to the disk and the room for a decision need.
IN_MEMORY = ("flags", "reserved", "content", "tail")


def amounts(amount: Amount) -> tuple[int, int, int]:
    return amount.transactions, amount.messages, amount.bytes


def described(ledger: Ledger) -> dict[str, Any]:
    """All that the journal says, as plain data; its offsets, places and times included."""
    indexes = [*ledger.sealed, ledger.index]
    return {
        "topics": {
            topic.name: [
                (queue.first, queue.next, queue.assigned, queue.settled) for queue in topic.queues
            ]
            for topic in ledger.made_topics()
        },
        "acked": {
            key: acked.beyond(0)
            for key, acked in ledger.acked.items()
            if not acked.is_empty  # a group that only polls is not in the journal
        },
        "undecided": [(tx, waiting(entry)) for tx, entry in ledger.undecided.items()],
        "by_tx_id": {tx_id: entry.tx for tx_id, entry in ledger.by_tx_id.items()},
        "undecided_in_all": amounts(ledger.undecided_in_all),
        "undecided_of": {name: amounts(mine) for name, mine in ledger.undecided_of.items()},
        "upto": (ledger.applied_upto, ledger.last_us),
        "lanes": [
            {
                key: (
                    lane.first,
                    lane.next,
                    lane.first_us,
                    lane.last_us,
                    [*lane.starts],
                    [*lane.counts],
                    [*lane.records],
                    [*lane.bodies],
                )
                for key, lane in index.lanes.items()
            }
            for index in indexes
        ],
        "outcomes": [(index.outcome_keys, index.outcome_places) for index in indexes],
    }


def waiting(entry: Entry) -> dict[str, Any]:
    """A transaction that is undecided: all of its PREPARE, and where its messages lie."""
    prepare = entry.prepare
    stated = {name: getattr(prepare, name) for name in prepare.__slots__ if name not in IN_MEMORY}
    runs = [
        {name: getattr(run, name) for name in run.__slots__ if name not in IN_MEMORY}
        for run in entry.runs
    ]
    return {
        "state": entry.state,
        "busy": entry.busy,
        "start": entry.start,
        "prepare": stated | {"acks": [ack.key() for ack in prepare.acks]},
        "runs": runs,
    }


class Life:
    """An engine that does what a test says, and what its journal says afterwards."""

    def __init__(self, compress_bytes_min: int | None = None) -> None:
        self.disk, self.clock = CrashDisk(), FakeClock()
        # One segment has room for all steps: of a sealed one the index is in a file, not in memory.
        options = fmq.Options(
            segment_bytes=256 * 1024,
            topic_queues={"three": 3},
            compress_bytes_min=compress_bytes_min,
            reference_bytes_min=REFERENCE_BYTES_MIN,
        )
        self.engine = fmq.open("shop", options, disk=self.disk, clock=self.clock, background=False)

    def step(self, kind: str, what: Any) -> None:
        self.clock.advance(0.001)
        do: Callable[..., None] = getattr(self, kind.replace(" ", "_"))
        do(*what)

    def send(self, place: tuple[str, int | None], item: Any) -> None:
        message = item if isinstance(item, fmq.Message) else fmq.Message(item)
        self.engine.send(
            place[0],
            message.body,
            key=message.key,
            tag=message.tag,
            headers=message.headers,
            queue=place[1],
        )

    def many(self, place: tuple[str, int | None], items: list[Any]) -> None:
        self.engine.send_many(place[0], items, queue=place[1])

    def transaction(self, sends: list[Any], acking: bool) -> None:
        self.collected(sends, acking).commit()

    def two_phases(self, sends: list[Any], acking: bool, end: str) -> None:
        """Prepared; then ended by itself or by a decision on its id, or left undecided."""
        tx = self.collected(sends, acking)
        tx.bound = acking  # as those that fmq.bind begins
        tx.prepare()
        self.clock.advance(0.001)
        if end == "commit":
            tx.commit()
        elif end == "roll back":
            tx.rollback()
        elif end != "leave":
            self.engine.decide(tx.tx_id, end.removeprefix("decide "))  # type: ignore[arg-type]

    def collected(self, sends: list[Any], acking: bool) -> fmq.Transaction:
        tx = self.engine.transaction(producer="p" if acking else None)
        for (topic, queue), item in sends:
            tx.send_many(topic, [item], queue=queue)
        if acking:
            with self.engine.consumer(["one", "three"], group="g") as consumer:
                for delivery in consumer.poll(limit=2):
                    tx.ack(delivery)
        return tx

    def decide(self, decision: Any) -> None:
        """The oldest that was left."""
        for each in self.engine.undecided()[:1]:
            self.engine.decide(each.tx_id, decision)

    def ack(self, limit: int, as_batch: bool) -> None:
        """Outside of transactions."""
        with self.engine.consumer(["one", "three"], group="g") as consumer:
            if as_batch:
                batch = consumer.poll_batch(limit=limit)
                if batch is not None:
                    batch.ack()
            else:
                for delivery in consumer.poll(limit=limit):
                    delivery.ack()

    def compare(self) -> None:
        """What the running engine remembers, and what recovery makes of the journal alone."""
        ledger = self.engine._parts.ledger
        assert not ledger.index.base, "all of it lies in the first segment"
        live = described(ledger)
        self.engine.close()
        directory = self.disk.directory("shop", make=False)
        for name in directory.names():
            if not name.endswith((".seg", ".spare")):
                directory.remove(name)
        assert described(recover(directory, look(directory)).ledger) == live


@given(st.lists(STEPS, max_size=12), st.sampled_from([None, 16]))
@settings(max_examples=150, deadline=None)
def test_the_running_engine_remembers_what_recovery_reads(
    steps: list[tuple[str, Any]], compress: int | None
) -> None:
    """Sends, batches, acks and transactions of all kinds and at all stages; also whether they stand
    where they are said to: a queue's offsets, the index's places, acks, outcomes and times, and
    what waits for its decision.
    """
    life = Life(compress)
    for kind, what in steps:
        life.step(kind, what)
    life.compare()


LARGE, SMALL = (("three", 2), bytes(range(100))), (("one", None), b"small")
EACH_WAY: list[tuple[str, Any]] = [
    ("many", (("one", None), [b"1", b"2", b"3", b"4", b"5", b"6", b"7", b"8"])),
    ("ack", (1, False)),
    ("ack", (2, True)),
    ("transaction", ([SMALL, LARGE], True)),
    *(("two phases", ([SMALL], False, end)) for end in ENDS),
    *(("two phases", ([SMALL, LARGE], True, end)) for end in ENDS),
    ("decide", ("rollback",)),
    ("two phases", ([SMALL, (("later", None), b"its topic is made with it")], False, "leave")),
]


@pytest.mark.parametrize("steps", range(1, len(EACH_WAY) + 1))
def test_each_way_alone_comes_to_what_recovery_reads(steps: int) -> None:
    """The same, step by step, as no step may hide what the one before has left."""
    life = Life()
    for kind, what in EACH_WAY[:steps]:
        life.step(kind, what)
    life.compare()


def test_these_steps_meet_each_way() -> None:
    """They meet all kinds of records but STATE; and what is prepared both kept in
    memory until it is decided, and not.
    """
    life = Life()
    for kind, what in EACH_WAY:
        life.step(kind, what)
    entries = life.engine._parts.ledger.undecided.values()
    assert [entry.kept is not None for entry in entries] == [False, True]
    life.engine.close()
    directory = life.disk.directory("shop", make=False)
    appends = [[record.kind for record in append] for append in Walk(directory)]
    assert {kind for append in appends for kind in append} == set(Kind) - {Kind.STATE}
    assert [Kind.ACK] in appends, "outside of transactions"


def test_receipts_say_where_the_records_stand() -> None:
    """Of each run of a transaction over topics that are made with it, and of a send."""
    life = Life()
    with life.engine:
        tx = life.engine.transaction()
        tx.send_many("three", [b"a", b"b"], queue=1)
        tx.send("one", b"c")
        receipts = [*tx.commit(), life.engine.send("one", b"d")]
        for receipt in receipts:
            found = life.engine.read(receipt.topic, queue=receipt.queue, offset=receipt.offset)
            assert found[0].position == receipt.position
    assert [receipt.count for receipt in receipts] == [2, 1, 1]


def test_a_transaction_in_one_phase_is_its_messages_and_a_commit() -> None:
    """No PREPARE: its number is the position of its first record."""
    life = Life()
    with life.engine:
        with life.engine.transaction(tx_id="T") as tx:
            tx.send("one", b"a")
        outcome = life.engine.outcome("T")
    assert outcome.prepared_at == outcome.decided_at
    directory = life.disk.directory("shop", make=False)
    kinds = [Kind(record.kind).name for append in Walk(directory) for record in append]
    assert kinds[:3] == ["TOPIC", "TX_MESSAGE", "COMMIT"]


def test_a_refused_append_changes_nothing() -> None:
    """A transaction that a full disk refuses leaves no topic, no offset and no record."""
    disk = FaultDisk(CrashDisk())
    options = fmq.Options(segment_bytes=4096)
    with fmq.open("shop", options, disk=disk, background=False) as engine:
        engine.send("one", b"")
        disk.fail("create", error=errno.ENOSPC, persistently=True)
        with pytest.raises(StorageFull):
            while True:
                engine.send("one", bytes(100))
        ledger = engine._parts.ledger
        before = described(ledger)
        tx = engine.transaction()
        tx.send("one", bytes(500))
        tx.send("later", bytes(500))
        with pytest.raises(StorageFull):
            tx.commit()
        assert described(ledger) == before
        assert "later" not in ledger.topics
        disk.heal()
        assert tx.commit()[0].offset == ledger.topics["one"].queues[0].next - 1
