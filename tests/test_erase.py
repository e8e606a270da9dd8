"""Erasing: what a message was is in no file any more, and all else is as it was."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import fmq
import fmq.aio
import fmq.table
from fmq.basics.message import Decision
from fmq.errors import BadOption, EraseRefused, OffsetBeyond, UnknownTopic
from fmq.recovery.erasure_file import ERASING
from fmq.testing import CrashDisk, FakeClock, PowerLoss
from tests.small import bodies, check, content, fill, opened, overwrite, remove

WHO = "erika@example.com"
SECRET = b"Erika Mustermann, of Heidestr. 17"
MAIL = {"mail": WHO}
DERIVED = (".idx", ".part", ".keys", ".0", ".1")


def where(disk: CrashDisk, *words: bytes) -> list[str]:
    """The files that have one of `words`."""
    found = content(disk)
    return [name for name, data in found.items() if any(word in data for word in words)]


def is_gone(disk: CrashDisk) -> bool:
    return not where(disk, SECRET, SECRET[6:], WHO.encode(), WHO.encode()[3:])


def send(engine: Any, topic: str = "t", **more: Any) -> Any:
    return engine.send(topic, SECRET, key=WHO, tag="VIP of " + WHO, headers=MAIL, **more)


def story(disk: CrashDisk, clock: FakeClock) -> fmq.Engine:
    """An engine whose journal has messages of one person in every way that there is."""
    engine = opened(disk, clock, compress_bytes_min=64)
    engine.create_topic("t", queues=1)
    engine.create_group("g", "t")
    send(engine)
    engine.send("t", b"of another", key="max")
    many = [fmq.Message(b"row %d" % i * 9, key=f"k{i}", headers={"a": "b"}) for i in range(9)]
    many[4] = fmq.Message(SECRET, WHO, WHO, MAIL)
    engine.send_many("t", many)
    engine.transaction(tx_id="one-phase").__enter__().send("t", b"x")
    decision: Decision
    for tx_id, decision in (("near", "commit"), ("far", "commit"), ("rolled", "rollback")):
        tx = engine.transaction(tx_id=tx_id, producer="p")
        tx.send("t", b"whole")
        send(tx)
        tx.prepare()
        if tx_id == "far":
            fill(engine)
        engine.decide(tx_id, decision)
    with engine.transaction(tx_id="one") as tx:
        send(tx)
    send(engine, delay=5)
    with engine.transaction(tx_id="later") as tx:
        send(tx, delay=6)
    clock.advance(10)
    engine.send("t", b"behind")
    consumer = engine.consumer("t", group="g")
    while deliveries := consumer.poll(timeout=0):
        for each in deliveries:
            if each.message.key == WHO:
                each.reject(f"no such customer: {WHO}")
            else:
                each.ack()
    consumer.close()
    return engine


def test_erased_messages_of_a_key_are_in_no_file_any_more() -> None:
    disk, clock = CrashDisk(), FakeClock()
    with story(disk, clock) as engine:
        assert len(where(disk, SECRET)) > 1
        others = [each for each in engine.read("t", limit=999) if each.key != WHO]
        letters = engine.dead_letters("g")
        assert len(letters.list()) > 3
        letters.replay(letters.list()[0].number)
        fill(engine)
        done = engine.erase("t", key=WHO)
        assert done.messages >= 6
        assert done.records > 2 * done.messages
        assert is_gone(disk)
        assert [each for each in engine.read("t", limit=999) if not each.erased] == others
        assert not engine.find("t", key=WHO)
        assert not letters.list()
        assert engine.erase("t", key=WHO) == (0, 0)
    check(disk)
    remove(disk, *(name for name in content(disk) if name.endswith(DERIVED)))
    check(disk)
    with opened(disk) as engine:
        assert [each for each in engine.read("t", limit=999) if not each.erased] == others
    assert is_gone(disk)


def test_one_message_is_erased_with_its_copies_and_no_other() -> None:
    disk, clock = CrashDisk(), FakeClock()
    with story(disk, clock) as engine:
        erased = 0
        for message in engine.read("t", limit=999):
            if message.key == WHO:
                before = engine.read("t", limit=999)
                assert engine.erase("t", 0, message.offset).messages == 1
                erased += 1
                for old, new in zip(before, engine.read("t", limit=999), strict=True):
                    assert new == old if old.offset != message.offset else new.erased
        assert erased >= 6
        assert where(disk, SECRET), "the rolled back one is no copy of any"
        engine.erase("t", key=WHO)
        assert is_gone(disk)
    check(disk)


def test_an_erased_message_keeps_its_offset_and_has_nothing() -> None:
    disk = CrashDisk()
    with opened(disk, queues=1) as engine:
        send(engine, message_id="once", priority=3)
        engine.send("t", b"next")
        engine.erase("t", 0, 0)
        erased, other = engine.read("t")
        assert erased.erased
        assert (erased.body, erased.key, erased.tag, erased.offset) == (b"", None, None, 0)
        assert (erased.message_id, erased.priority) == ("once", 3)
        assert other.body == b"next"
        assert not other.erased
        batch = engine.read_batch("t", limit=9)
        assert batch is not None
        assert batch.bodies == (b"", b"next")
        assert send(engine, message_id="once").offset == 0
        assert engine.queues("t")[0].next == 2


@pytest.mark.parametrize("reopened", [False, True])
def test_erased_messages_reach_no_group_and_are_counted(reopened: bool) -> None:
    disk = CrashDisk()
    with opened(disk, queues=1) as engine:
        engine.create_group("old", "t")
        for number in range(4):
            engine.send("t", b"%d" % number, key="even" if number % 2 == 0 else "odd")
        engine.erase("t", key="even")
        (info,) = engine.groups("old")
        assert (info.skipped, info.unread) == (2, 2)
        if reopened:
            engine.checkpoint()
    with opened(disk, queues=1) as engine:
        engine.create_group("new", "t", at="earliest")
        engine.group("old").seek("t", to="earliest")
        for group in ("old", "new"):
            consumer = engine.consumer("t", group=group)
            got: list[bytes] = []
            while deliveries := consumer.poll(timeout=0):
                got += [each.message.body for each in deliveries]
            assert got == [b"1", b"3"]
            consumer.close()


def test_erasing_is_refused_while_the_message_may_still_be_copied() -> None:
    disk = CrashDisk()
    with opened(disk, queues=1) as engine:
        tx = engine.transaction(tx_id="T", producer="p")
        send(tx)
        tx.prepare()
        with pytest.raises(EraseRefused, match="undecided transaction 'T'"):
            engine.erase("t", key=WHO)
        engine.decide("T", "rollback")
        receipt = send(engine, delay=60)
        with pytest.raises(EraseRefused, match="waits for its time"):
            engine.erase("t", key=WHO)
        engine.recall(receipt)
        assert not is_gone(disk)
        assert engine.erase("t", key=WHO) == (0, 2)
        assert is_gone(disk)


def test_wrong_places_are_refused() -> None:
    with opened(CrashDisk(), queues=1) as engine:
        engine.send("t", b"one")
        for args in ({}, {"queue": 0}, {"queue": 0, "offset": 0, "key": "k"}):
            with pytest.raises(BadOption):
                engine.erase("t", **args)
        with pytest.raises(OffsetBeyond):
            engine.erase("t", 0, 1)
        with pytest.raises(UnknownTopic):
            engine.erase("u", key="k")


def test_the_journal_says_where_a_message_was_erased_but_not_its_content() -> None:
    disk = CrashDisk()
    with opened(disk, queues=1) as engine:
        send(engine)
        engine.erase("t", key=WHO)
    rows = fmq.table.read("data", "records", disk=disk).read_all().to_pylist()
    (row,) = [row for row in rows if row["kind"] == "ERASE"]
    said = json.loads(row["erased"])
    assert said["ranges"] == [{"topic": "t", "queue": 0, "first": 0, "end": 1}]
    (message,) = fmq.table.read("data", disk=disk).read_all().to_pylist()
    assert (message["body"], message["key"], message["headers"]) == (
        b"",
        None,
        [("fmq.erased", "1")],
    )


def erase_from(disk: CrashDisk) -> None:
    with opened(disk, queues=1) as engine:
        engine.erase("t", key=WHO)


@pytest.mark.parametrize("kill", [False, True])
def test_a_crash_at_each_step_of_erase_leaves_all_messages_or_none(kill: bool) -> None:
    """Crash before each operation of the disk, and open again."""
    disk = CrashDisk()
    with opened(disk, queues=1) as engine:
        engine.create_group("g", "t")
        for number in range(3):
            send(engine)
            engine.send("t", b"kept %d" % number)
            fill(engine)
    before = content(disk)
    with opened(copied(disk), queues=1) as engine:
        kept = [each.body for each in engine.read("t", limit=99) if each.key != WHO]
    counting = copied(disk)
    start = counting.operations
    erase_from(counting)
    seen = set()
    for crash_at in range(start, counting.operations):
        for seed in range(3):
            broken = disk.after_kill(crash_at=crash_at)
            with suppress(PowerLoss, fmq.errors.EngineFailed):
                erase_from(broken)
            after = broken.after_kill() if kill else broken.after_power_loss(seed)
            with opened(after, queues=1) as engine:
                messages = engine.read("t", limit=99)
                erased = [each.erased for each in messages]
                assert [
                    each.body for each in messages if not each.erased and each.key != WHO
                ] == kept
                assert sum(erased) in (0, 3), f"{crash_at=} {seed=}: {erased}"
                assert bool(sum(erased)) == is_gone(after), f"{crash_at=} {seed=}"
                assert engine.groups("g")[0].skipped == sum(erased), f"{crash_at=} {seed=}"
                assert ERASING not in content(after)
                seen.add(sum(erased))
            check(after)
    assert seen == {0, 3}
    assert before == content(disk)


def copied(disk: CrashDisk) -> CrashDisk:
    return disk.after_kill()


def test_a_backup_takes_over_no_segment_in_which_something_was_erased(tmp_path: Path) -> None:
    disk = CrashDisk()
    with opened(disk, queues=1) as engine:
        send(engine)
        fill(engine)
        fmq.backup("data", "copy", disk=disk)
        engine.erase("t", key=WHO)
        made = fmq.backup("data", "copy", disk=disk)
    assert not made.problems
    files = disk.files("copy")
    assert not any(SECRET in file.content() for file in files.values())


def test_erase_works_on_a_loop_and_through_a_client(tmp_path: Path) -> None:
    with fmq.open(tmp_path) as engine:
        send(engine)
        engine.send("t", b"two", key="k")
        with engine.serve(), fmq.connect(tmp_path, start=False) as client:
            assert client.erase("t", key=WHO).messages == 1
            found = [client.read("t", queue=each.queue) for each in client.queues("t")]
            assert sum(each.erased for queue in found for each in queue) == 1

        async def on_a_loop() -> None:
            async with fmq.aio.connect(tmp_path, start=False) as face:
                assert (await face.erase("t", key="k")).messages == 1

        with engine.serve():
            asyncio.run(on_a_loop())


def test_erasing_one_key_leaves_the_bodies_of_other_keys() -> None:
    disk = CrashDisk()
    with opened(disk, queues=1, compress_bytes_min=16) as engine:
        many = [fmq.Message(b'{"row": %d, "name": "x"}' % i, key=f"k{i % 7}") for i in range(200)]
        engine.send_many("t", many)
        engine.erase("t", key="k3")
        found = engine.read("t", limit=999)
        for sent, message in zip(many, found, strict=True):
            assert message.erased == (sent.key == "k3")
            assert message.erased or (message.body, message.key) == sent[:2]
        assert bodies(engine, "t", 0, 4) == [each.body for each in found[4:]]


@pytest.mark.parametrize("how", ["copied", "rolled back", "referred to", "published"])
def test_check_reports_an_erased_message_that_an_older_copy_has_again(how: str) -> None:
    """Also if the copy has only what was prepared, or has another message erased already."""
    disk, both = CrashDisk(), [fmq.Message(SECRET, WHO), fmq.Message(SECRET, "max")]
    with opened(disk, queues=1, reference_bytes_min=1) as engine:
        if how == "published":
            engine.send_many("t", both)
        else:
            tx = engine.transaction(tx_id="T", producer="p")
            tx.send_many("t", both)
            tx.prepare()
            if how != "referred to":
                fill(engine)
            engine.decide("T", "rollback" if how == "rolled back" else "commit")
        if how in ("referred to", "published"):
            engine.erase("t", key="max")
        fill(engine)
        before = content(disk)
        assert engine.erase("t", key=WHO).records == (2 if how == "copied" else 1)
        fill(engine)
    check(disk)
    name = min(each for each in before if each.endswith(".seg"))
    assert SECRET in before[name]
    overwrite(disk, name, 0, before[name])
    (problem,) = fmq.check("data", disk=disk).problems
    assert problem.file == name
    assert "were erased" in problem.what
