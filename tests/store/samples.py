"""Records of every kind for the tests of the store: one example each, and strategies for any."""

from __future__ import annotations

import zlib
from datetime import UTC, datetime
from typing import Any

from hypothesis import strategies as st

from fmq.basics.message import Message
from fmq.store.bytes.content import OF_PLACE, copy_of, encode_messages
from fmq.store.bytes.encoding import encode_all, size_of
from fmq.store.bytes.extension import decode_extension, encode_extension
from fmq.store.bytes.kinds import (
    AckRange,
    Acks,
    Carryover,
    Changed,
    ChangeKind,
    Decided,
    Erasure,
    Hole,
    IdsKept,
    Joint,
    Kind,
    MarkChange,
    Marks,
    Prepare,
    QueuePlace,
    Record,
    Run,
    TopicMade,
    Tried,
    TriedRange,
)
from fmq.store.bytes.record import FIRST, LAST
from fmq.store.bytes.timing import Timing, with_timing
from fmq.store.index.id_table import TakenId, table_of

APART = {"bodies", "columns", "id_keys", "ids", "tail"}
"""The fields that only writing needs, or that are made when they are asked for."""
STORE = bytes(range(16))
SEED = zlib.crc32(STORE)
POSITION = 4096
RUNS = (Kind.MESSAGE, Kind.PRE_MESSAGE, Kind.TX_MESSAGE)
DECISIONS = (Kind.COMMIT, Kind.ROLLBACK)

MESSAGES = (
    Message(b"first", key="k", tag="t", headers={"a": "1", "b": ""}),
    Message(b"", key=None, tag="ä"),
    Message(b"third and longer", key=""),
)
EXTRA_MESSAGES = (
    Message(b"1", message_id="order 4711 ä", priority=9),
    Message(b"2", key="k", expires_at=datetime(2031, 5, 6, tzinfo=UTC)),
    Message(b"3", message_id="x" * 255, priority=0),
)


def examples() -> dict[str, Record]:
    """One record of every kind, none of its fields left at its default."""
    sent = encode_messages(MESSAGES, None)
    packed = encode_messages([Message(b"again and " * 20, key="k")] * 3, 1)
    acks = (AckRange("gruppe ä", "orders", 3, 5, 9), AckRange("g", "t", 0, 0, 1))
    seal = bytes(range(100, 116))
    records: dict[str, Record] = {
        kind.name: run_at(sent, kind, "orders", 7, 41, 1_700_000_000_000_000) for kind in RUNS
    }
    for name in ("PRE_MESSAGE", "TX_MESSAGE"):
        run = records[name]
        assert isinstance(run, Run)
        run.tx, run.tx_id, run.producer = 64, "order-42", "checkout ö"
    records["compressed"] = run_at(packed, Kind.MESSAGE, "orders", 7, 41, 1_700)
    one = encode_messages([Message(b"x")], None)
    records["one body"] = run_at(one, Kind.MESSAGE, "t", 0, 0, 1_700)
    records["REF_MESSAGE"] = run_of(
        Kind.REF_MESSAGE, "orders", 7, 41, 3, 1_700, 64, "order-42", "checkout ö", 1 << 40
    )
    records["PREPARE"] = prepare = Prepare(
        "order-42", "checkout", 1_700, 2, 6, 600, seal, acks,
        tx=64, prepared_us=1_600, replaces=64, check_after_ms=2_500,
    )  # fmt: skip
    prepare.bound = True
    for kind in DECISIONS:
        records[kind.name] = Decided(
            kind, 64, "order-42", "checkout", 1_700, 1_600, 2, 6, 600, seal,
            "ada", "ticket 4711 — ü", 4000,
        )  # fmt: skip
    extended = run_at(sent, Kind.MESSAGE, "orders", 7, 41, 1_700_000_000_000_000)
    records["extended"] = extended
    extended.extension = encode_extension({1: b"\x01" * 26, 9: b""})
    extras = encode_messages(EXTRA_MESSAGES, None)
    for name, kind in (("extras", Kind.MESSAGE), ("prepared extras", Kind.PRE_MESSAGE)):
        records[name] = run_at(extras, kind, "orders", 7, 41, 1_700)
    records["TIMER"] = timer = run_at(extras, Kind.TIMER, "orders", 7, 0, 1_700)
    timer.tx, timer.tx_id, timer.producer = 64, "order-42", "ö"
    timer.extension = with_timing(extras.extension, Timing(1 << 50, 4096))
    records["ACK"] = Acks(acks, 1_700, 64)
    records["taken"] = taken = Acks(acks[:1], 1_700)
    taken.extension = encode_extension({1: b"\x01" * 26})
    changes = MarkChange("source ä", 1 << 63, b"page 3"), MarkChange("gone", 0, None)
    records["MARK"] = Marks(changes, 1_700, 64)
    places = QueuePlace(0, 1 << 40), QueuePlace(4095, 0)
    records["CHANGE"] = Changed(ChangeKind.SEEK, "pack ä", "orders", places, 7, "tags:paid", 1_700)
    tries = TriedRange("pack ä", "orders", 3, 5, 9, 2, 1_800), TriedRange("g", "t", 0, 0, 1, 1)
    records["TRIED"] = Tried(tries, 1_700)
    records["STATE"] = Carryover(b'{"floor": 64}', 1_700)
    row = TakenId(bytes(range(16)), "orders ä", 3, 41, 1 << 40, 1_600)
    records["IDS"] = IdsKept(table_of(0, [row, row._replace(topic="t")]).encode(), 1_700)
    records["HOLE"] = Hole(b"\0" * 40, 1_700)
    erased = [AckRange("", "orders ä", 3, 41, 47), AckRange("", "t", 0, 0, 1)]
    records["ERASE"] = Erasure(1 << 40, erased, [0, 1 << 39], 1_700)
    records["JOINT"] = Joint(Kind.COMMIT, changes[:1], [64, 1 << 40], 1_700)
    records["TOPIC"] = TopicMade("orders ß", 12, 1_700)
    return records


def run_at(
    run: Run, kind: Kind, topic: str, queue: int = 0, offset: int = 0, time_us: int = 0
) -> Run:
    """A copy of `run`, as it was made of messages, as a record at this place."""
    run.topic, run.queue = topic, queue
    new = copy_of(run, kind)
    new.offset, new.time_us, new.target = offset, time_us, None
    return new


def run_of(
    kind: Kind,
    topic: str,
    queue: int,
    offset: int,
    count: int,
    time_us: int,
    tx: int = 0,
    tx_id: str = "",
    producer: str = "",
    body_position: int = 0,
) -> Run:
    """Return a run without bodies, as a replay meets it."""
    run = Run(kind, count)
    run.topic, run.queue, run.offset, run.time_us = topic, queue, offset, time_us
    run.tx, run.tx_id, run.producer, run.body_position = tx, tx_id, producer, body_position
    run.position, run.target = 0, None
    return run


def place(record: Record, position: int = POSITION, flags: int = FIRST | LAST) -> Record:
    """Do what the journal does to a record before it encodes it."""
    record.position = position
    record.flags = record.flags & ~OF_PLACE | flags
    record.size = size_of(record)
    return record


def encoded(record: Record, durable_to: int = 64, seed: int = SEED) -> bytes:
    """The bytes of a placed record, padding included."""
    return b"".join(encode_all([record], record.position, record.time_us, durable_to, seed, 0)[0])


def fields(record: Record) -> dict[str, Any]:
    """Return the fields of a record, to be compared with those of another."""
    names = set(type(record).__slots__) - APART
    said = {name: getattr(record, name, None) for name in names}
    return said | {"kind": record.kind}


# --- any record at all ---------------------------------------------------------------------------


def texts(bytes_max: int = 255) -> st.SearchStrategy[str]:
    """Text of at most `bytes_max` bytes in UTF-8."""
    fits = st.text(max_size=bytes_max // 4)
    return fits | st.text(st.characters(codec="ascii"), max_size=bytes_max)


u16 = st.integers(0, (1 << 16) - 1)
u32 = st.integers(0, (1 << 32) - 1)
u64 = st.integers(0, (1 << 64) - 1)
times = st.integers(-(1 << 63), (1 << 63) - 1)
tx_ids = st.text(st.characters(codec="ascii"), max_size=255)
seals = st.binary(min_size=16, max_size=16)
positions = st.integers(0, (1 << 60)).map(lambda n: n * 8)

acks = st.builds(AckRange, texts(), texts(), u16, u64, u64)
bodies = st.binary(max_size=40) | st.binary(max_size=4).map(lambda data: data * 50)
optional_texts = st.none() | st.text(max_size=20)
headers = st.none() | st.dictionaries(st.text(max_size=10), st.text(max_size=10), max_size=4)
message_ids = st.none() | st.text(min_size=1, max_size=20)
expiries = st.none() | st.datetimes(timezones=st.just(UTC))
nothing = st.none()
messages = st.builds(
    Message,
    *(bodies, optional_texts, optional_texts, headers, nothing, nothing),
    *(message_ids, st.none() | st.integers(0, 9), expiries),
)
encoded_messages = st.builds(
    encode_messages, st.lists(messages, min_size=1, max_size=12), st.none() | st.integers(0, 100)
)


@st.composite
def runs(draw: st.DrawFn) -> Run:
    kind = draw(st.sampled_from((*RUNS, Kind.TIMER)))
    sent = draw(encoded_messages)
    run = run_at(sent, kind, draw(texts()), draw(u16), draw(u64), draw(times))
    run.producer, run.extension = draw(texts()), b""
    if kind != Kind.MESSAGE:
        run.tx, run.tx_id = draw(u64), draw(tx_ids)
    if kind == Kind.TIMER:
        timing = Timing(draw(st.integers(0, (1 << 63) - 1)), draw(u64))
        run.extension = with_timing(sent.extension, timing)
    return run


references = st.builds(
    run_of,
    st.just(Kind.REF_MESSAGE),
    texts(),
    u16,
    u64,
    st.integers(1, 1 << 24),
    times,
    u64,
    tx_ids,
    texts(),
    u64,
)


def prepare(*said: Any, bound: bool, **more: Any) -> Prepare:
    made = Prepare(*said, **more)
    made.bound = bound
    return made


prepares = st.builds(
    prepare,
    tx_ids,
    texts(),
    times.filter(bool),
    u32,
    u32,
    u64,
    seals,
    st.lists(acks, max_size=4),
    tx=u64.filter(bool),
    prepared_us=times,
    replaces=u64,
    check_after_ms=st.integers(-(1 << 63), (1 << 63) - 1),
    bound=st.booleans(),
)
decisions = st.builds(
    Decided,
    st.sampled_from(DECISIONS),
    u64,
    tx_ids,
    texts(),
    times,
    times,
    u32,
    u32,
    u64,
    seals,
    texts(),
    texts(1000),
    u64,
)
tries = st.builds(TriedRange, texts(), texts(), u16, u64, u64, u32, times)
mark_changes = st.builds(MarkChange, texts(), u64, st.binary(max_size=64)) | st.builds(
    MarkChange, texts(), u64, st.none()
)
plain_records: st.SearchStrategy[Record] = st.one_of(
    runs(),
    references,
    prepares,
    decisions,
    st.builds(Acks, st.lists(acks, max_size=5), times, u64),
    st.builds(Tried, st.lists(tries, max_size=5), times),
    st.builds(Marks, st.lists(mark_changes, max_size=5), times, u64),
    st.builds(
        Changed,
        st.sampled_from(ChangeKind),
        texts(),
        texts(),
        st.lists(st.builds(QueuePlace, u16, u64), max_size=5),
        u64,
        texts(1000),
        times,
    ),
    st.builds(Carryover, st.binary(max_size=200), times),
    st.builds(IdsKept, st.binary(max_size=200), times),
    st.builds(Hole, st.binary(max_size=200), times),
    st.builds(Erasure, u64, st.lists(acks, max_size=3), st.lists(u64, max_size=3), times),
    st.builds(
        Joint,
        st.sampled_from([Kind.COMMIT, Kind.ROLLBACK]),
        st.lists(mark_changes, max_size=1),
        st.lists(u64, max_size=5),
        times,
    ),
    st.builds(TopicMade, texts(), u16, times),
)


@st.composite
def any_record(draw: st.DrawFn) -> Record:
    record = draw(plain_records)
    columns = st.dictionaries(st.integers(0, 255), st.binary(max_size=40), max_size=3)
    said = decode_extension(record.extension) if record.extension else {}
    record.extension = encode_extension(draw(columns) | said)
    return record


records: st.SearchStrategy[Record] = any_record()
