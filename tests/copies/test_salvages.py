"""A salvage is a new directory with all that is sound, and says what is not."""

from __future__ import annotations

from contextlib import suppress
from random import Random
from typing import Any

import pytest

import fmq
from fmq.errors import BackupRefused, Damaged, Locked, NotAStore
from fmq.testing import CrashDisk, FakeClock
from tests.recovery.planting import checkpoint, left_by, send
from tests.recovery.sights import OPTIONS, finished, interrupted, seen
from tests.small import bodies, content, fill, flip, opened, overwrite, remove, segments
from tools.damage_many import report, run

NEW = "new"
SLOTS = ("checkpoint.0", "checkpoint.1")


def salvaged(disk: CrashDisk) -> fmq.Salvaged:
    return fmq.salvage("data", NEW, disk=disk, clock=FakeClock())


def new_engine(disk: CrashDisk, **options: Any) -> fmq.Engine:
    chosen = fmq.Options(**{"segment_bytes": 4096, **OPTIONS, **options})
    return fmq.open(NEW, chosen, disk=disk, clock=FakeClock(), background=False)


def flip_in(disk: CrashDisk, body: bytes, back: int = 0) -> None:
    """Turn two bits in the one place that has `body`, or `back` bytes before. One bit of a head
    would be turned back.
    """
    ((name, at),) = [
        (name, data.find(body)) for name, data in content(disk).items() if body in data
    ]
    flip(disk, name, at - back)
    flip(disk, name, at - back + 1)


def test_a_turned_bit_of_a_head_is_turned_back_in_the_copy() -> None:
    disk = CrashDisk()
    with opened(disk, queues=1) as engine:
        engine.send("t", b"one", key="of two bytes")
        engine.send("t", b"two")
    (name,) = segments(disk)
    flip(disk, name, content(disk)[name].find(b"of two bytes"))
    made = salvaged(disk)
    assert not made.ok
    assert [each.reason for each in made.problems] == [
        "one bit of a head had turned, and was turned back"
    ]
    with fmq.open("new", disk=disk, background=False) as engine:
        assert [each.key for each in engine.read("t")] == ["of two bytes", None]
        assert not engine.stats().recovery.damaged


@pytest.mark.parametrize("make", [finished, interrupted])
def test_a_sound_directory_is_copied_as_it_is(make: Any) -> None:
    """Undecided transactions have their bodies. A kill leaves what a recovery finds."""
    disk = make()
    before = content(disk)
    made = salvaged(disk)
    assert (made.ok, made.lost, made.transactions, made.problems) == (True, (), (), ())
    assert content(disk) == before
    assert fmq.check(NEW, disk=disk).ok
    with opened(disk, **OPTIONS) as old, new_engine(disk) as new:
        assert seen(new) == seen(old)
        new.decide("open", "commit")


def everything() -> CrashDisk:
    """Groups, acks, marks, dead letters and timers, and three topics."""
    disk, clock = CrashDisk(), FakeClock()
    with opened(disk, clock, queues=1) as engine:
        engine.create_group("g", "t")
        for number in range(6):
            engine.send("t", b"message %d" % number)
        engine.send("gone", b"all of it")
        with engine.transaction(tx_id="two") as tx:
            tx.send("t", b"first half")
            tx.send("u", b"second half")
            tx.mark("m", 7, b"data")
        engine.send("later", b"d", delay=600.0)
        with engine.consumer("t", group="g") as consumer:
            one, two, *_ = consumer.poll()
            one.ack()
            two.reject("bad")
        tx = engine.transaction(tx_id="open")
        tx.send("t", b"not yet")
        tx.prepare()
    return disk


@pytest.mark.parametrize("with_slots", [True, False])
def test_sound_messages_beside_the_damage_are_there(with_slots: bool) -> None:
    """A head is damaged: its append is left out, and all others keep their offsets."""
    disk = everything()
    flip_in(disk, b"message 3", back=20)
    if not with_slots:
        remove(disk, *(name for name in SLOTS if name in content(disk)))
    made = salvaged(disk)
    assert not made.ok
    assert [(each.topic, each.first, each.end) for each in made.lost] == [("t", 3, 4)]
    assert not [each for each in made.transactions if each.tx_id == "two"]
    with new_engine(disk, queues=1) as engine:
        assert bodies(engine, "t", 0, 4) == [b"message 4", b"message 5", b"first half"]
        with pytest.raises(Damaged):
            engine.read("t", offset=3)
        assert engine.mark("m") == (7, b"data")
        assert [each.topic for each in engine.delayed()] == ["later"]
        assert [each.body for each in engine.dead_letters("g").list()] == [b"message 1"]
        with engine.consumer("t", group="g", damaged="skip") as consumer:
            found = sorted(each.message.body for _ in range(3) for each in consumer.poll())
        assert found == [b"first half", b"message 2", b"message 4", b"message 5"]
        assert engine.decide("open", "commit").receipts[0].offset == 7
        assert engine.send("t", b"on").offset == 8
    assert fmq.check(NEW, disk=disk).ok


def test_a_transaction_with_a_damaged_head_is_left_out_as_a_whole() -> None:
    disk = everything()
    flip_in(disk, b"first half", back=30)
    made = salvaged(disk)
    assert [each.tx_id for each in made.transactions if "left out" in each.reason] == ["two"]
    assert {(each.topic, each.first) for each in made.lost} == {("t", 6), ("u", 0)}
    with new_engine(disk, queues=1) as engine:
        for topic, offset in (("t", 6), ("u", 0)):
            with pytest.raises(Damaged):
                engine.read(topic, offset=offset)
        assert engine.mark("m") == (7, b"data"), "the checkpoint knows it"


def test_a_transaction_with_a_damaged_body_is_kept_and_named() -> None:
    disk = everything()
    flip_in(disk, b"first half")
    made = salvaged(disk)
    ((name, what),) = [(each.tx_id, each.reason) for each in made.transactions]
    assert (name, what) == ("two", "committed, and some of its messages cannot be read")
    with new_engine(disk, queues=1) as engine:
        assert bodies(engine, "u") == [b"second half"]
        with pytest.raises(Damaged):
            engine.read("t", offset=6)


def test_an_impaired_transaction_stays_undecided_and_is_named() -> None:
    disk = everything()
    flip_in(disk, b"not yet")
    ((name, what),) = [(each.tx_id, each.reason) for each in salvaged(disk).transactions]
    assert (name, what) == ("open", "undecided, and some of its messages cannot be read")
    with new_engine(disk) as engine:
        engine.decide("open", "rollback")


def test_a_transaction_whose_decision_may_be_lost_is_named() -> None:
    disk = CrashDisk()
    with opened(disk) as engine:
        tx = engine.transaction(tx_id="T")
        tx.send("t", b"1")
        tx.prepare()
        engine.decide("T", "rollback", reason="it was refused")
        engine.send("u", b"2")
    flip_in(disk, b"it was refused")
    (named,) = [each for each in salvaged(disk).transactions if "as far as is known" in each.reason]
    assert named.tx_id == "T"


@pytest.mark.parametrize("number", [0, 1, -1])
@pytest.mark.parametrize("how", ["missing", "header", "short"])
def test_a_segment_that_is_lost_costs_what_was_in_it(number: int, how: str) -> None:
    disk = CrashDisk()
    with opened(disk, queues=1) as engine:
        engine.create_group("g", "t")
        for i in range(20):
            engine.send("t", b"%d" % i * 900)
        places = {i: engine.read("t", offset=i, limit=1)[0].position or 0 for i in range(20)}
    name = segments(disk)[number]
    base, size = int(name[:20]), len(content(disk)[name])
    if how == "missing":
        remove(disk, name)
    elif how == "header":
        flip(disk, name, 20)
    else:
        data = content(disk)[name][:700]
        remove(disk, name)
        disk.directory("data", make=False).create(name).write(0, (data,), sync=True)
    made = salvaged(disk)
    assert name in {each.file for each in made.problems}
    gone = {i for i, at in places.items() if base <= at < base + size} if how != "header" else set()
    lost = {i for each in made.lost for i in range(each.first, each.end)}
    assert lost == gone
    with new_engine(disk, queues=1) as engine:
        for i in range(20):
            if i not in gone:
                assert engine.read("t", offset=i, limit=1)[0].body == b"%d" % i * 900
            else:
                with pytest.raises(Damaged):
                    engine.read("t", offset=i, limit=1)
        assert [each.group for each in engine.groups()] == ["g"]
        assert engine.send("t", b"on").offset == 20


def test_records_that_nothing_proves_durable_are_left_out_as_in_a_recovery() -> None:
    disk = CrashDisk()
    with opened(disk, checkpoint_idle_seconds=1e9) as engine:
        engine.send("t", b"first")
        engine.send("t", b"torn " * 30)
        killed = disk.after_power_loss(1)
    flip_in(killed, b"torn " * 30)
    made = salvaged(killed)
    assert made.ok
    assert made.tail_bytes
    with new_engine(killed) as engine:
        assert bodies(engine, "t") == [b"first"]


@pytest.mark.parametrize("offset", [0, 5])
def test_a_sound_record_that_contradicts_is_left_out_and_named(offset: int) -> None:
    """Nothing else is: the messages before it are there, and the topic goes on."""
    tail = left_by(send(b"0"), lambda engine: engine.send("u", b"other"), checkpoint)
    tail.plant(tail.end, tail.message(offset))
    before = content(tail.disk)
    with pytest.raises(Damaged, match="a sound record in a wrong place"):
        opened(tail.disk)
    (problem,) = salvaged(tail.disk).problems
    assert f"continues at offset {offset}, not 1" in problem.reason
    assert f"t/0 offsets {offset} to {offset}" in problem.reason
    assert content(tail.disk) == before
    with new_engine(tail.disk) as engine:
        assert engine.send("t", b"next").offset == 1
        assert bodies(engine, "t") == [b"0", b"next"]
        assert bodies(engine, "u") == [b"other"]


def test_a_salvage_of_a_salvage_is_the_same() -> None:
    disk = everything()
    flip_in(disk, b"message 3", back=20)
    salvaged(disk)
    made = fmq.salvage(NEW, "newer", disk=disk, clock=FakeClock())
    assert made.ok or [(each.topic, each.first, each.end) for each in made.lost] == [("t", 3, 4)]


def test_only_a_new_directory_is_written_to_and_only_a_journal_is_read() -> None:
    disk = finished()
    with pytest.raises(BackupRefused, match="Nothing was changed"):
        fmq.salvage("data", "data", disk=disk)
    disk.directory("empty", make=True)
    with pytest.raises(NotAStore):
        fmq.salvage("empty", NEW, disk=disk)
    with opened(disk), pytest.raises(Locked):
        salvaged(disk)


def damaged() -> CrashDisk:
    disk = everything()
    flip_in(disk, b"message 3", back=20)
    return disk


@pytest.mark.parametrize("make", [damaged, finished])
def test_a_power_cut_in_a_salvage_leaves_the_whole_journal_or_none(make: Any) -> None:
    """Whatever the power cut leaves, no engine opens it, or it is whole."""
    disk = make()
    cuts: list[CrashDisk] = []
    disk.watch(lambda line: cuts.extend(disk.states()))
    salvaged(disk)
    disk.watch(None)
    expected, whole = content_of(disk), 0
    for cut in cuts:
        there = content_of(cut)
        with suppress(NotAStore, Damaged), new_engine(cut) as engine:
            if there:
                assert there == expected
                assert engine.read("t", limit=1)
                whole += 1
    assert whole


def content_of(disk: CrashDisk) -> list[str]:
    try:
        names = disk.directory(NEW, make=False).names()
    except NotAStore:
        return []
    return [name for name in names if name.endswith(".seg")]


def test_an_interrupt_leaves_an_empty_directory() -> None:
    disk = everything()

    def stop(done: int, total: int) -> None:
        if done > total * 0.6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fmq.salvage("data", NEW, progress=stop, disk=disk)
    assert disk.directory(NEW, make=False).names() == []


def test_a_salvage_keeps_sound_messages_beside_damage_of_many_kinds() -> None:
    judge = run(150, 7, only_open=False, directories=20)
    said = report(judge)
    assert not judge.wrong
    assert said["salvaged"] > 120
    assert said["share readable after salvage"] >= said["share readable after open"]


def test_a_salvage_of_noise_gives_no_message_that_was_never_sent() -> None:
    """Zeros and noise anywhere in a segment give no message that was never sent."""
    random = Random(3)
    for _ in range(20):
        disk = everything()
        (name, *_) = segments(disk)
        overwrite(disk, name, random.randrange(64, 2500), random.randbytes(random.choice((1, 300))))
        with suppress(Damaged):
            salvaged(disk)
            with new_engine(disk, queues=1) as engine:
                fill(engine)
