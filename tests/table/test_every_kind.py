"""What records of each kind say, as columns: in `records`, and in a view of their own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

import pytest

import fmq
import fmq.table
from fmq.store.bytes.kinds import AckRange, Kind, MarkChange, QueuePlace, Record, TriedRange
from fmq.table.records import row_of
from fmq.testing import CrashDisk, FakeClock
from tests.small import fill, flip_two, opened, segments

LONG = "g" * 255  # of such a group the topic of its dead letters has only a digest


@pytest.fixture(scope="module")
def told() -> CrashDisk:
    """A journal with records of every kind."""
    return story(CrashDisk())


def story(disk: CrashDisk, *, carried: bool = True) -> CrashDisk:
    clock = FakeClock()
    options: dict[str, Any] = {"reference_bytes_min": 200, "retain_bytes": 40 * 4096}
    with opened(disk, clock, **options) as engine:
        for number in range(8):
            engine.send("t", b"%d" % number, key=f"k{number}", message_id=f"m{number}")
        with engine.consumer("t", group="g") as one, engine.transaction(tx_id="one") as tx:
            tx.mark("page", 2**64 - 1, b"\0data")
            tx.mark("gone", 1)
            tx.send("u", b"in one phase")
            tx.ack(one.poll(limit=1)[0])
        two = engine.transaction(tx_id="two", producer="shop")
        two.send("u", bytes(500))
        two.unmark("gone")
        two.prepare()
        two.commit()
        three = engine.transaction(tx_id="three")
        three.send("u", b"never")
        three.prepare()
        three.rollback()
        for name in ("four", "five"):
            each = engine.transaction(tx_id=name)
            each.send("u", b"together")
            each.prepare()
        engine.decide_many(["four", "five"], "commit", mark=("joint", 5, None))
        with engine.consumer("t", group="g", retry=fmq.Retry(5)) as consumer:
            first, second, third = consumer.poll(limit=3)
            first.reject("no good")
            second.reject("bad")
            third.release(delay=600)
        with engine.consumer("t", group=LONG) as consumer:
            consumer.poll(limit=1)[0].reject("long")
        engine.dead_letters("g").replay([0])
        engine.dead_letters("g").purge([1])
        engine.send("t", b"late", delay=60)
        recalled = engine.send("t", b"recalled", delay=60)
        assert engine.recall(recalled)
        clock.advance(61)
        engine.sync()
        engine.topic("t").add_queues(2)
    if carried:
        with opened(disk, clock, retain_bytes=6 * 4096, keep_unread=False) as engine:
            for _ in range(12):
                fill(engine)
            engine.send("t", b"tried", queue=0)
            with engine.consumer("t", group="g") as consumer:
                for delivery in consumer.poll():
                    delivery.release(delay=600)
            for _ in range(4):
                fill(engine)
            assert engine.stats().first_position > 8 * 4096
    return disk


def rows(disk: CrashDisk, view: str, **kwargs: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (
        fmq.table.read("data", view, disk=disk, **kwargs).read_all().to_pylist()
    )
    return found


# --- records ------------------------------------------------------------------------------------


def with_a_hole() -> list[dict[str, Any]]:
    """The records of a salvaged directory, one of which was damaged."""
    disk = CrashDisk()
    with opened(disk) as engine:
        engine.send("t", b"lost")
        engine.send("t", b"kept")
        engine.send("t", b"erased")
        engine.erase("t", 0, 2)
    flip_two(disk, segments(disk)[0], 70)
    fmq.salvage("data", "new", disk=disk)
    found: list[dict[str, Any]] = fmq.table.read("new", "records", disk=disk).read_all().to_pylist()
    return found


COMMON = {"position", "kind", "append", "size", "time", "segment"}
RUN = {"topic", "queue", "messages", "bytes", "bodies"}
TX = {"tx", "tx_id"}
SAYS: dict[Kind, list[set[str]]] = {
    Kind.MESSAGE: [RUN | {"offset"}, RUN | {"offset", "dead"}, RUN | {"offset", "due", "timer"}],
    Kind.PREPARE: [TX | {"messages", "bytes", "seal", "prepared", "bound"}],
    Kind.PRE_MESSAGE: [RUN | TX],
    Kind.REF_MESSAGE: [TX | {"topic", "queue", "offset", "messages", "refers_to"}],
    Kind.TX_MESSAGE: [RUN | TX | {"offset"}],
    Kind.COMMIT: [TX | {"messages", "bytes", "seal", "prepared", "asked"}],
    Kind.ROLLBACK: [TX | {"bytes", "seal", "prepared", "asked"}],
    Kind.ACK: [{"acks", "expired"}, {"tx", "acks", "expired"}],
    Kind.STATE: [{"bytes", "carried"}],
    Kind.TOPIC: [{"topic", "queues"}],
    Kind.MARK: [{"tx", "marks"}],
    Kind.CHANGE: [{"change", "group"}, {"change", "ends_timers"}, {"change", "topic"}],
    Kind.TRIED: [{"attempts"}],
    Kind.TIMER: [RUN | {"due", "timer"}],
    Kind.IDS: [{"bytes", "ids"}],
    Kind.HOLE: [{"bytes"}],
    Kind.ERASE: [{"erased"}],
    Kind.JOINT: [{"joint", "marks"}],
}
"""Of each kind, what some of its records say besides COMMON."""


def test_records_of_every_kind_have_rows_with_their_content(told: CrashDisk) -> None:
    """A kind without an entry fails here: it needs columns, and a test of what they say."""
    assert set(SAYS) == set(Kind)
    salvaged = with_a_hole()
    before = rows(story(CrashDisk(), carried=False), "records")
    found: dict[str, list[set[str]]] = {kind.name: [] for kind in Kind}
    for row in (*before, *rows(told, "records"), *salvaged):
        said = {name for name, value in row.items() if value is not None and name not in COMMON}
        found[row["kind"]].append(said - {"producer"})
    for kind, expected in SAYS.items():
        for columns in expected:
            known = found[kind.name]
            assert any(columns <= each for each in known), (kind.name, columns, known)


OTHERWISE = {
    *(
        "flags",
        *("bodies", "columns", "ids"),
        "tail",
        "id_keys",
        "extension",
        "target",
    ),  # how it is written; see columns of it
    *("bodies_crc", "columns_crc", "append_start"),  # checked; `append` says the last
    *("kept_bytes", "reserved"),  # in memory only
    *("records", "replaces"),  # implied by others in the append; `refers_to`
}
KEYS: dict[str, list[Any]] = {
    "ranges": [(AckRange("g", "t", 0, 0, 1),), (TriedRange("g", "t", 0, 0, 1, 1),)],
    "changes": [(MarkChange("m", 1, b""),)],
    "marks": [(MarkChange("m", 1, b""),)],
    "places": [(QueuePlace(0, 5),)],
    "segments": [(4096,)],
    "transactions": [(64,)],
    "acks": [(AckRange("g", "t", 0, 0, 1),)],
}


def of_each_class() -> Iterator[tuple[Any, str]]:
    """Yield a record of each class, and each of its fields that a reader wants to see."""
    for made in get_args(Record):
        for name in made.__slots__:
            if name not in OTHERWISE and (made.__name__, name) != ("Prepare", "marks"):
                yield made, name


def sample(made: Any) -> Any:
    """Return a record of this class with something in each field."""
    record = made.__new__(made)
    known: dict[str, Any] = {
        "topic": "t",
        "tx_id": "T",
        "producer": "p",
        "group": "g",
        "text": "x",
        "name": "n",
        "decided_by": "d",
        "reason": "r",
        "extension": b"",
        "seal": bytes(16),
        "acks": (),
        "places": (),
        "segments": (),
        "transactions": (),
        "decision": Kind.COMMIT,
        "ranges": (),
        "changes": (),
        "marks": (),
        "json": b"{}",
        "asked": 2,
        "table": bytes(8),
        "bound": False,
        "kind": 1,
        "tail": b"",
        "content": b"x",
    }
    for name in made.__slots__:
        default: Any = known.get(name, 7)
        if name == "kind" and made.__name__ == "Decided":
            default = Kind.COMMIT
        setattr(record, name, default)
    return record


@pytest.mark.parametrize(
    ("made", "name"),
    [pytest.param(*each, id=f"{each[0].__name__}.{each[1]}") for each in of_each_class()],
)
def test_every_field_of_a_record_is_in_a_column(made: Any, name: str) -> None:
    """Of two records that differ in one field the rows differ, and both fit their columns."""
    one, other = sample(made), sample(made)
    value = getattr(one, name)
    if name in KEYS and not isinstance(value, int):
        kept = KEYS[name][made.__name__ == "Tried"] if name == "ranges" else KEYS[name][0]
        setattr(other, name, kept)
    elif name == "kind":
        setattr(other, name, Kind.ROLLBACK if made.__name__ == "Decided" else Kind.TX_MESSAGE)
    elif name == "table":
        other.table = bytes(12)
        with pytest.raises(Exception, match="are not 0 rows"):
            row_of(other, 0, "s")
        return
    elif isinstance(value, bool):
        setattr(other, name, not value)
    elif isinstance(value, int):
        setattr(other, name, value + 1)
    elif isinstance(value, bytes):
        setattr(other, name, b'{"a":1}' if name == "json" else bytes(15) + b"1")
    else:
        setattr(other, name, value + "2")
    assert row_of(one, 0, "s") != row_of(other, 0, "s")


# --- the views ----------------------------------------------------------------------------------


@pytest.mark.parametrize("carried", [False, True])
def test_the_last_row_of_a_mark_equals_its_value_in_the_engine(carried: bool) -> None:
    disk = story(CrashDisk(), carried=carried)
    found = {row["name"]: row for row in rows(disk, "marks")}
    shown = {
        name: (int(row["value"]), row["data"]) for name, row in found.items() if not row["removed"]
    }
    with opened(disk) as engine:
        said = {name: (mark.value, mark.data) for name, mark in engine.marks(prefix="").items()}
    assert shown == said == {"page": (2**64 - 1, b"\0data"), "joint": (5, b"")}
    assert carried == ("gone" not in found) == found["page"]["carried"]
    if not carried:
        assert (found["page"]["tx_id"], found["gone"]["tx_id"]) == ("one", "two")
        assert found["gone"]["removed"] and found["gone"]["producer"] == "shop"


@pytest.mark.parametrize("carried", [False, True])
def test_dead_letters_are_those_of_the_engine(carried: bool) -> None:
    """Those that no later row ends are there, also if they were carried forward."""
    disk = story(CrashDisk(), carried=carried)
    found = rows(disk, "dead_letters")
    ends = [row for row in found if row["event"] != "dead"]
    there = [
        row
        for row in found
        if row["event"] == "dead"
        and not any(
            each["group"] == row["group"]
            and each["place"] in (None, row["place"])
            and each["position"] > row["position"]
            for each in ends
        )
    ]
    with opened(disk) as engine:
        said = [*engine.dead_letters(LONG), *engine.dead_letters("g")]
    assert [row["group"] for row in there] == [LONG]
    names = {name: name for name in ("topic", "queue", "offset", "attempts", "reason", "key")}
    names |= {"number": "number", "body": "body", "died_at": "died_at", "sent": "time"}
    names |= {"sent_position": "position", "message_id": "message_id", "tag": "tag"}
    for row, letter in zip(there, said, strict=True):
        assert {name: row[name] for name in names} == {
            name: getattr(letter, of) for name, of in names.items()
        }
    if not carried:
        assert [row["event"] for row in ends if row["group"] == "g"] == ["replayed", "purged"]
        assert [row["reason"] for row in found if row["event"] == "dead"] == [
            *("no good", "bad", "long"),
        ]
    narrow = rows(disk, "dead_letters", columns=["reason", "place"])
    assert narrow == [{"reason": row["reason"], "place": row["place"]} for row in found]


@pytest.mark.parametrize("carried", [False, True])
def test_acks_and_attempts_are_those_of_the_engine(carried: bool) -> None:
    disk = story(CrashDisk(), carried=carried)
    acked = {
        (row["group"], offset)
        for row in rows(disk, "acks")
        if row["topic"] == "t" and row["queue"] == 0
        for offset in range(row["first"], row["end"])
    }
    assert {offset for group, offset in acked if group == "g"} >= {0, 1, 2}
    tried = [row for row in rows(disk, "attempts") if row["group"] == "g" and row["topic"] == "t"]
    last = {offset: row for row in tried for offset in range(row["first"], row["end"])}
    assert 3 not in last or not carried  # that message is dropped
    newest = last[max(last)]
    assert newest["attempts"] == 1 and newest["due"] is not None
    assert newest["carried"] == carried
    if not carried:
        assert {row["tx_id"] for row in rows(disk, "acks")} == {None, "one"}


def test_rows_name_the_timer_that_they_publish_or_recall() -> None:
    found = rows(story(CrashDisk(), carried=False), "records")
    timers = [row for row in found if row["kind"] == "TIMER"]
    [published] = [row for row in found if row["kind"] == "MESSAGE" and row["timer"] is not None]
    ended = [number for row in found for number in row["ends_timers"] or ()]
    late, recalled = timers
    assert (published["timer"], published["due"]) == (late["timer"], late["due"])
    assert ended == [recalled["timer"], late["timer"]]
