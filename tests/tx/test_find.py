"""`engine.find`: the messages of a topic that have a key, the newest first."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import pytest

import fmq
from fmq import Message
from fmq.errors import BadOption, Damaged, FmqError
from fmq.store.reading import key_marks
from fmq.testing import CrashDisk, FakeClock, FaultDisk, PowerLoss
from tests.budget import draw
from tests.small import check, content, flip, opened, overwrite, segments

KEYS = ["a", "b", "c", "ä", ""]


def found(engine: Any, key: str, limit: int = 100) -> list[Any]:
    return [message.body for message in engine.find("t", key=key, limit=limit)]


def marks_of(disk: CrashDisk) -> list[str]:
    return sorted(name for name in content(disk) if name.endswith(".keys"))


def filled(disk: CrashDisk, **options: Any) -> fmq.Engine:
    """An engine with several segments: each key in several of them, in records of all sorts."""
    engine = opened(disk, topic_queues={"t": 3}, **options)
    for number in range(40):
        engine.send("t", b"%d" % number, key=KEYS[number % 5], headers={"filler": "x" * 200})
        engine.send("t", b"without a key")
        engine.send("other", b"another topic", key="a")
    batch = [Message(b"%d" % number, key=KEYS[number % 5]) for number in range(40, 50)]
    engine.send_many("t", batch, queue=2)
    tx = engine.transaction(tx_id="T")
    tx.send("t", b"50", key="a")
    tx.prepare()
    engine.send("t", b"51", key="a")
    tx.commit()
    return engine


EXPECTED = [b"50", b"51", b"45", b"40", *(b"%d" % number for number in range(35, -1, -5))]
"""What has the key "a", the newest first: what was prepared counts from its commit on."""


def test_the_newest_messages_with_a_key_are_found_first() -> None:
    disk = CrashDisk()
    with filled(disk) as engine:
        assert len(segments(disk)) > 3
        assert found(engine, "a") == EXPECTED
        assert found(engine, "a", 3) == EXPECTED[:3]
        assert found(engine, "b", 1) == [b"46"]
        assert found(engine, "ä", 1) == [b"48"]
        assert found(engine, "") == [b"49", b"44", *(b"%d" % n for n in range(39, -1, -5))]
        assert found(engine, "never") == []
        assert engine.find("never", key="a") == []
        newest = engine.find("t", key="a")[0]
        assert newest.queue is not None
        assert newest.offset is not None
        assert (newest.key, newest.topic) == ("a", "t")
        assert engine.read("t", queue=newest.queue, offset=newest.offset)[0] == newest
        engine.send("t", b"new", key="a")
        assert found(engine, "a", 2) == [b"new", b"50"]


def test_a_restart_changes_no_search_result() -> None:
    disk = CrashDisk()
    with filled(disk) as engine:
        found(engine, "a")
    with opened(disk) as engine:
        assert found(engine, "a") == EXPECTED
    with opened(disk.after_kill()) as engine:
        assert found(engine, "a") == EXPECTED
    with fmq.open("data", read_only=True, disk=disk, clock=FakeClock()) as reader:
        assert found(reader, "a") == EXPECTED
    check(disk)


def test_a_search_reads_only_marks_and_found_records_of_full_segments() -> None:
    """After the first call, and after a restart, no segment without the key is opened."""
    disk = CrashDisk()
    with filled(disk) as engine:
        engine.send("t", b"once", key="once")
        for _ in range(40):
            engine.send("t", bytes(400), key="a")
        found(engine, "once")
        files = segments(disk)
    with opened(disk) as engine:
        disk.opened.clear()
        assert found(engine, "once") == [b"once"]
        read = [path for path in disk.opened if path.endswith(".seg")]
    assert len(files) > 6
    assert len(read) <= 2, read  # the one that holds it, and the one being written


@pytest.mark.parametrize("damage", ["flip", "cut", "other", "gone"])
def test_damaged_or_missing_key_mark_files_are_written_again(damage: str) -> None:
    disk = CrashDisk()
    with filled(disk) as engine:
        assert found(engine, "a") == EXPECTED
    names = marks_of(disk)
    assert len(names) == len(segments(disk)) - 1
    for name in names:
        if damage == "flip":
            flip(disk, name, len(content(disk)[name]) - 2)
        elif damage == "other":
            overwrite(disk, name, 0, content(disk)[names[0]])
        else:
            disk.directory("data", make=False).remove(name)
            if damage == "cut":
                disk.directory("data", make=False).create(name).close()
    with opened(disk) as engine:
        assert found(engine, "a") == EXPECTED
    assert marks_of(disk) == names
    check(disk)


def test_a_power_cut_while_marks_are_written_changes_no_search_result() -> None:
    """They are not synced, so any part of them may be left. Each run draws some of these states."""
    whole = CrashDisk()
    filled(whole).close()
    with opened(whole) as engine:
        before = whole.operations
        found(engine, "a")
        ends = whole.operations
    assert ends - before >= 4
    for crash_at in range(before, ends):
        disk = CrashDisk(crash_at=crash_at)
        with suppress(PowerLoss):
            filled(disk).close()
            with opened(disk) as engine, suppress(FmqError):
                found(engine, "a")
        for left in draw(disk.states(), 8, f"find {crash_at}"):
            with opened(left) as engine:
                assert found(engine, "a") == EXPECTED, f"{crash_at=} {left.loss}"


def test_marks_are_made_as_segments_fill_after_the_first_search() -> None:
    disk = CrashDisk()
    with filled(disk) as engine:
        assert marks_of(disk) == []
        found(engine, "never")
    before = marks_of(disk)
    with opened(disk) as engine:
        for _ in range(20):
            engine.send("t", bytes(500), key="a")
        assert len(marks_of(disk)) > len(before) > 0
    assert {name[:20] for name in marks_of(disk)} == {name[:20] for name in segments(disk)[:-1]}


def test_a_full_disk_prevents_no_search() -> None:
    disk = CrashDisk()
    filled(disk).close()
    faults = FaultDisk(disk)
    faults.fail("create", persistently=True, names="*.keys")
    with opened(faults) as engine:
        assert found(engine, "a") == EXPECTED
    assert marks_of(disk) == []


def test_dropped_messages_are_not_found_and_their_marks_are_removed() -> None:
    disk, clock = CrashDisk(), FakeClock()
    with filled(disk) as engine:
        found(engine, "a")
    with opened(disk, clock, retain_bytes=1, keep_unread=False) as engine:
        engine.send("t", b"new", key="a")
        left = found(engine, "a")
        readable = {
            message.body
            for info in engine.queues("t")
            for message in engine.read("t", queue=info.queue, offset=info.first, limit=999)
            if message.key == "a"
        }
        assert left == [body for body in (b"new", *EXPECTED) if body in readable]
        assert len(left) < len(EXPECTED)
        bases = {name[:20] for name in segments(disk)}
        assert {name[:20] for name in marks_of(disk)} <= bases


def test_messages_of_a_deleted_topic_are_not_found() -> None:
    """Neither in older segments nor in that where it was deleted, also after a restart."""
    disk = CrashDisk()
    with filled(disk) as engine:
        engine.topic("t").delete()
        assert found(engine, "a") == []
        engine.send("t", b"again", key="a")
        assert found(engine, "a") == [b"again"]
        for _ in range(30):
            engine.send("other", bytes(500))
        assert found(engine, "a") == [b"again"]
    with opened(disk) as engine:
        assert found(engine, "a") == [b"again"]


def test_keys_with_equal_hashes_are_distinguished() -> None:
    """Method: keys are drawn until two have one hash, which takes some 80,000."""
    draw, known = random.Random(7), dict[int, str]()
    while True:
        key = f"{draw.getrandbits(64):x}"
        other = known.setdefault(key_marks.hash_of(key), key)
        if other != key:
            break
    with opened(CrashDisk()) as engine:
        engine.send("t", b"1", key=key)
        engine.send("t", b"2", key=other)
        assert (found(engine, key), found(engine, other)) == ([b"1"], [b"2"])


def test_a_search_raises_damage_where_the_key_may_be() -> None:
    disk = CrashDisk()
    filled(disk).close()
    flip(disk, segments(disk)[1], 200)
    with opened(disk) as engine, pytest.raises(Damaged):
        found(engine, "a")


def test_wrong_arguments_are_refused() -> None:
    with opened(CrashDisk()) as engine:
        with pytest.raises(TypeError):
            engine.find("t", key=b"a")  # type: ignore[arg-type]
        with pytest.raises(BadOption):
            engine.find("t", key="a", limit=0)
