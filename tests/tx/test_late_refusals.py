"""What a replay would refuse is refused before a byte of it is written: idea 5 of docs/design.md.

Each kind of record, and each sort of CHANGE, has bad records here. One is planned in an engine. It
is refused, nothing was changed, the engine goes on, and the directory opens afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import pytest

import fmq
from fmq import TopicCodec
from fmq.errors import EngineFailed, FmqError, IllegalRecord
from fmq.store.bytes.content import encode_one
from fmq.store.bytes.extension import Request, encode_extension, extension_of
from fmq.store.bytes.kinds import (
    AckRange,
    Acks,
    Append,
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
from fmq.store.index.index import OutOfLine
from fmq.testing.inside import inside
from fmq.tx.ledger.queues import Topic
from fmq.tx.ledger.seal import seal_of
from fmq.tx.said.codec_met import codec_text
from fmq.tx.said.limit_met import LimitMet
from fmq.tx.said.schedule_met import ScheduleMet
from tests.small import CrashDisk, bodies, check, opened

FAR = 1 << 40
NOWHERE = [QueuePlace(7, 0)]  # the topic has one queue
BEYOND = [QueuePlace(0, FAR)]

CODEC = TopicCodec("json", 2, {"id": "integer"})


def run(kind: Kind, topic: str = "a", queue: int = 0, *, extension: bytes = b"") -> Run:
    made = encode_one(b"x", None)
    made.kind, made.topic, made.queue, made.extension = kind, topic, queue, extension
    return made


def prepare(**changed: object) -> Prepare:
    made = Prepare("T", "", 0, 0, 0, 0, seal_of([]))
    for name, value in changed.items():
        setattr(made, name, value)
    return made


def decided(kind: Kind, tx: int = 8) -> Decided:
    return Decided(kind, tx, "T", "", 0, 0, 1, 1, 1, bytes(16))


def change(
    asked: ChangeKind,
    group: str,
    topic: str,
    places: Sequence[QueuePlace] = (),
    value: int = 0,
    text: str = "",
) -> Changed:
    return Changed(asked, group, topic, places, value, text)


def one_of_transaction(kind: Kind, tx: int) -> Run:
    made = run(kind)
    made.tx, made.tx_id = tx, "T"
    return made


BAD: dict[Kind, dict[str, Callable[[], Record]]] = {
    Kind.MESSAGE: {
        "of no queue": lambda: run(Kind.MESSAGE, queue=7),
        "with extras of nonsense": lambda: run(
            Kind.MESSAGE, extension=encode_extension({3: b"\1\1\1"})
        ),
        "for too many requests": lambda: run(
            Kind.MESSAGE, extension=extension_of(Request(bytes(16), 1, 0, 5))
        ),
    },
    Kind.PREPARE: {
        "of another number": lambda: prepare(tx=8),
        "of more than follows": lambda: prepare(messages=2, records=1),
        "that replaces nothing": lambda: prepare(replaces=64, tx=FAR),
    },
    Kind.PRE_MESSAGE: {"without its PREPARE": lambda: run(Kind.PRE_MESSAGE)},
    Kind.REF_MESSAGE: {"of nothing": lambda: one_of_transaction(Kind.REF_MESSAGE, 8)},
    Kind.TX_MESSAGE: {"of an unknown transaction": lambda: one_of_transaction(Kind.TX_MESSAGE, 8)},
    Kind.COMMIT: {
        "of nothing known": lambda: decided(Kind.COMMIT),
        "with a count beyond its field": lambda: Decided(
            Kind.COMMIT, 8, "T", "", 0, 0, 1, -1, 1, bytes(16)
        ),
    },
    Kind.ROLLBACK: {"of nothing known": lambda: decided(Kind.ROLLBACK, FAR)},
    Kind.ACK: {
        "that ends before it begins": lambda: Acks([AckRange("g", "a", 0, 1, 0)], 0),
        "beyond the end": lambda: Acks([AckRange("g", "a", 0, 0, FAR)], 0),
        "of a topic that was never made": lambda: Acks([AckRange("g", "zz", 0, 0, 1)], 0),
        "of the second range": lambda: Acks(
            [AckRange("g", "a", 0, 0, 1), AckRange("g", "a", 0, 1, 0)], 0
        ),
        "below 0": lambda: Acks([AckRange("g", "a", 0, -1, 0)], 0),
    },
    Kind.STATE: {
        "of nonsense": lambda: Carryover(b"{}", 0),
        "that is no JSON": lambda: Carryover(b"[" * 3000, 0),
    },
    Kind.TOPIC: {
        "a second time": lambda: TopicMade("a", 1, 0),
        "of no queue": lambda: TopicMade("b", 0, 0),
        "of too many queues": lambda: TopicMade("b", 1 << 20, 0),
    },
    Kind.MARK: {"alone": lambda: Marks([MarkChange("m", 1, b"")], 0)},
    Kind.CHANGE: {},  # below
    Kind.TRIED: {
        "of nothing": lambda: Tried([TriedRange("g", "a", 0, 5, 5, 1)]),
        "more often than can be": lambda: Tried([TriedRange("g", "a", 0, 0, 1, 1 << 40)]),
    },
    Kind.TIMER: {
        "without a time": lambda: run(Kind.TIMER),
    },
    Kind.ERASE: {
        "beyond the end": lambda: Erasure(1, [AckRange("", "a", 0, 0, FAR)], [0], 0),
        "of no message": lambda: Erasure(1, [AckRange("", "a", 0, 1, 1)], [0], 0),
        "of no topic": lambda: Erasure(1, [AckRange("", "zz", 0, 0, 1)], [0], 0),
    },
    Kind.JOINT: {
        "over nothing": lambda: Joint(Kind.COMMIT, [], []),
        "over what is not undecided": lambda: Joint(Kind.COMMIT, [], [FAR]),
        "that is a PREPARE": lambda: Joint(Kind.PREPARE, [], [FAR]),
    },
    Kind.HOLE: {"of a running engine": lambda: Hole(b"", 0)},
    Kind.IDS: {"of nonsense": lambda: IdsKept(b"\xff" * 11, 0)},
}


def configured(text: str) -> Record:
    return Changed(ChangeKind.CONFIGURE, "", "", text=text)


SCHEDULED = ScheduleMet("n", "a", "* * * * *", "UTC", "once", b"", None, None, {}, "ann").text()
SEEK, SKIP = ChangeKind.SEEK, ChangeKind.SKIP
BAD_CHANGES: dict[ChangeKind, dict[str, Callable[[], Record]]] = {
    ChangeKind.MAKE_GROUP: {
        "a second time": lambda: change(ChangeKind.MAKE_GROUP, "g", "a"),
        "beyond the end": lambda: change(ChangeKind.MAKE_GROUP, "new", "a", BEYOND),
        "in no queue": lambda: change(ChangeKind.MAKE_GROUP, "new", "a", NOWHERE),
    },
    SEEK: {
        "of no group": lambda: change(SEEK, "zz", "a", [QueuePlace(0, 0)]),
        "of no topic": lambda: change(SEEK, "g", ""),
        "beyond the end": lambda: change(SEEK, "g", "a", BEYOND),
        "to a place in a queue, and one in none": lambda: change(
            SEEK, "g", "a", [QueuePlace(0, 2), *NOWHERE]
        ),
        "to a negative place": lambda: change(SEEK, "g", "a", [QueuePlace(0, -1)]),
    },
    SKIP: {
        "of no group": lambda: change(SKIP, "zz", "a", [QueuePlace(0, 0)], 1),
        "beyond the end": lambda: change(SKIP, "g", "a", [QueuePlace(0, 0)], 99),
        "in a queue, and in none": lambda: change(SKIP, "g", "a", [QueuePlace(0, 0), *NOWHERE], 1),
    },
    ChangeKind.FILTER: {"of no topic": lambda: change(ChangeKind.FILTER, "g", "")},
    ChangeKind.DELETE_GROUP: {"of no group": lambda: change(ChangeKind.DELETE_GROUP, "zz", "")},
    ChangeKind.ADD_QUEUES: {
        "to fewer": lambda: change(ChangeKind.ADD_QUEUES, "", "a", value=1),
        "to too many": lambda: change(ChangeKind.ADD_QUEUES, "", "a", value=1 << 20),
        "of no topic": lambda: change(ChangeKind.ADD_QUEUES, "", "zz", value=2),
    },
    ChangeKind.RETAIN: {"of no topic": lambda: change(ChangeKind.RETAIN, "", "zz", value=1)},
    ChangeKind.TRIM: {
        "of no topic": lambda: change(ChangeKind.TRIM, "", "zz", [QueuePlace(0, 0)]),
        "beyond the end": lambda: change(ChangeKind.TRIM, "", "a", BEYOND),
        "of a queue, and of none": lambda: change(
            ChangeKind.TRIM, "", "a", [QueuePlace(0, 1), *NOWHERE]
        ),
    },
    ChangeKind.DELETE_TOPIC: {"of no topic": lambda: change(ChangeKind.DELETE_TOPIC, "", "zz")},
    ChangeKind.BEGIN_DEAD: {
        "with a name that does not fit": lambda: change(ChangeKind.BEGIN_DEAD, "g" * 300, "")
    },
    ChangeKind.END_DEAD: {
        "of a group without any": lambda: change(ChangeKind.END_DEAD, "zz", ""),
        "beyond the end": lambda: change(
            ChangeKind.END_DEAD, "g", "", [QueuePlace(0, each) for each in (0, FAR, 0)]
        ),
        "not in threes": lambda: change(ChangeKind.END_DEAD, "g", "", [QueuePlace(0, 0)]),
    },
    ChangeKind.PAUSE: {
        "of no group": lambda: change(ChangeKind.PAUSE, "zz", "", text="ann\n"),
        "of no topic": lambda: change(ChangeKind.PAUSE, "", "zz", text="ann\n"),
        "of nothing": lambda: change(ChangeKind.PAUSE, "", "", text="ann\n"),
        "of both": lambda: change(ChangeKind.PAUSE, "g", "a", text="ann\n"),
    },
    ChangeKind.RESUME: {
        "of no group": lambda: change(ChangeKind.RESUME, "zz", "", text="ann\n"),
        "of what is not paused": lambda: change(ChangeKind.RESUME, "g", "", text="ann\n"),
    },
    ChangeKind.LIMIT: {
        "of no group": lambda: change(ChangeKind.LIMIT, "zz", "", text=LimitMet(3).text()),
        "without any text": lambda: change(ChangeKind.LIMIT, "g", ""),
        "that is no object": lambda: change(ChangeKind.LIMIT, "g", "", text="[3]"),
        "of nothing at once": lambda: change(ChangeKind.LIMIT, "g", "", text=LimitMet(0).text()),
        "of a rate that is no number": lambda: change(
            ChangeKind.LIMIT, "g", "", text=LimitMet(rate=math.nan).text()
        ),
        "with a word that is not known": lambda: change(
            ChangeKind.LIMIT, "g", "", text='{"speed":3}'
        ),
    },
    ChangeKind.CODEC: {
        "of no topic": lambda: change(ChangeKind.CODEC, "", "zz", text=codec_text(CODEC)),
        "without any text": lambda: change(ChangeKind.CODEC, "", "a"),
        "of no version": lambda: change(
            ChangeKind.CODEC, "", "a", text='{"name":"json","version":0,"fields":null}'
        ),
        "with fields that are no texts": lambda: change(
            ChangeKind.CODEC, "", "a", text='{"name":"json","version":1,"fields":{"id":1}}'
        ),
    },
    ChangeKind.SCHEDULE: {
        "without any text": lambda: change(ChangeKind.SCHEDULE, "", "a"),
        "of no topic": lambda: change(ChangeKind.SCHEDULE, "", "zz", value=9, text=SCHEDULED),
        "with a time beyond all calendars": lambda: change(
            ChangeKind.SCHEDULE, "", "a", value=1 << 63, text=SCHEDULED
        ),
    },
    ChangeKind.DUE: {
        "of no schedule": lambda: change(ChangeKind.DUE, "", "a", text='{"name":"n","due":5}'),
        "without any text": lambda: change(ChangeKind.DUE, "", "a"),
    },
    ChangeKind.UNSCHEDULE: {
        "of no schedule": lambda: change(ChangeKind.UNSCHEDULE, "", "a", text='{"name":"n"}'),
    },
    ChangeKind.FIRE: {"of no timer": lambda: change(ChangeKind.FIRE, "", "", BEYOND)},
    ChangeKind.RECALL: {"of no timer": lambda: change(ChangeKind.RECALL, "", "", BEYOND, 1)},
    ChangeKind.CONFIGURE: {
        "without any text": lambda: change(ChangeKind.CONFIGURE, "", ""),
        "that is no object": lambda: configured("[]"),
        "with a value that has parts": lambda: configured('{"set":{"queues":[1]},"reset":[]}'),
        "with a reset that is no name": lambda: configured('{"set":{},"reset":[7]}'),
    },
}

ALL = [
    *((kind, what, make) for kind, some in BAD.items() for what, make in some.items()),
    *((asked, what, make) for asked, some in BAD_CHANGES.items() for what, make in some.items()),
]


def test_each_kind_and_each_change_has_a_bad_record_in_the_test() -> None:
    """A kind of record that is added needs an example here that is refused."""
    assert set(BAD) == set(Kind)
    assert set(BAD_CHANGES) == set(ChangeKind)
    assert all(some for kind, some in BAD.items() if kind != Kind.CHANGE)
    assert all(BAD_CHANGES.values())


@pytest.mark.parametrize(
    "make", [make for *_, make in ALL], ids=[f"{kind.name} {what}" for kind, what, _ in ALL]
)
def test_a_bad_record_is_refused_before_it_is_written(make: Callable[[], Record]) -> None:
    disk = CrashDisk()
    with opened(disk) as engine:
        engine.send("a", b"1")
        engine.send("a", b"2")
        with engine.consumer("a", group="g") as consumer:
            consumer.poll(limit=1)[0].reject("bad")
        before, groups = engine.stats().position, engine.groups()
        queue, plan = inside(engine).commit_queue, inside(engine).writer.send
        with pytest.raises(FmqError) as met:
            queue.run(plan, [make()])
        assert not isinstance(met.value, EngineFailed)
        assert "othing was changed" in str(met.value)
        assert engine.stats().position == before
        assert engine.groups() == groups
        assert engine.stats().failure is None
        engine.send("a", b"3")
    check(disk)
    with opened(disk) as engine:
        assert bodies(engine, "a") == [b"1", b"2", b"3"]
        assert engine.groups("g")[0].unread == 2


def test_a_bad_record_after_a_good_one_ends_the_engine_before_the_write() -> None:
    """What the first has changed in memory is not undone. No byte of either is written."""
    disk = CrashDisk()
    engine = opened(disk)
    engine.send("a", b"1")
    before = engine.stats().position
    append = [run(Kind.MESSAGE), TopicMade("a", 1, 0)]
    with pytest.raises(Exception, match="made a second time"):
        inside(engine).commit_queue.run(inside(engine).writer.send, append)
    assert engine.stats().position == before
    with pytest.raises(EngineFailed):
        engine.send("a", b"2")
    engine.close()
    check(disk)
    with opened(disk) as engine:
        assert bodies(engine, "a") == [b"1"]


def test_a_wrong_offset_of_a_plan_is_refused_before_it_is_written() -> None:
    disk = CrashDisk()
    with opened(disk) as engine:
        engine.send("a", b"1")
        writer = inside(engine).writer
        give = writer._give

        def give_another(append: Append, topics: Mapping[str, Topic]) -> None:
            give(append, topics)
            append[0].offset = 99

        writer._give = give_another  # type: ignore[method-assign]
        with pytest.raises(IllegalRecord, match="continues at offset 99, not 1"):
            engine.send("a", b"2")
        writer._give = give  # type: ignore[method-assign]
        engine.send("a", b"3")
    check(disk)
    with opened(disk) as engine:
        assert bodies(engine, "a") == [b"1", b"3"]


def test_a_state_with_wrong_offsets_ends_the_engine_before_the_write() -> None:
    """What gives out an offset also checks it. The index of the segment is the second witness."""
    disk = CrashDisk()
    small = fmq.Options(segment_bytes=4096)
    with fmq.open("data", small, disk=disk, background=False) as engine:  # without a shadow
        engine.send("a", b"1")
        inside(engine).ledger.topics["a"].queues[0].end = 99
        with pytest.raises(OutOfLine, match="a/0 goes on at 99, and ends at 1"):
            engine.send("a", b"2")
        with pytest.raises(EngineFailed):
            engine.send("a", b"3")
    check(disk)
    with opened(disk) as engine:
        assert bodies(engine, "a") == [b"1"]
