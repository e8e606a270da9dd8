"""What is shipped is a clean prefix at any moment, and a directory made of it shows it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import fmq
from fmq.copies import forget_shipping
from fmq.errors import BackupRefused, Damaged, NotAStore
from fmq.testing import CrashDisk, FakeClock
from tests.recovery.sights import OPTIONS, seen, work
from tests.small import bodies, fill, opened
from tests.tool import said_by

S, R = "shipped", "restored"


def shipped(disk: Any, **named: Any) -> fmq.Shipped:
    return fmq.ship("data", S, disk=disk, **named)


def restored(disk: Any, path: str = R, **named: Any) -> fmq.Engine:
    """Return the engine of a directory that is restored from the place."""
    fmq.restore(S, path, disk=disk, **named)
    assert fmq.check(path, disk=disk).ok
    return fmq.open(path, disk=disk, clock=FakeClock(), background=False)


def names(disk: CrashDisk, end: str = ".piece") -> list[str]:
    there = disk.directory(S, make=False).names()
    return sorted(name for name in there if name.endswith(end))


def test_a_restore_of_a_shipped_journal_shows_what_the_engine_showed() -> None:
    disk = CrashDisk()
    with opened(disk, **OPTIONS) as engine:
        work(engine)
        shown = seen(engine)
        engine.checkpoint()
        made = shipped(disk)
        assert made.position == engine.stats().position
        fill(engine)
        engine.decide("open", "commit")
    with restored(disk) as other:
        assert seen(other) == shown
        other.decide("open", "rollback")


def test_each_call_adds_what_is_new_and_a_full_segment_is_one_piece() -> None:
    disk = CrashDisk()
    positions: list[int] = []
    with opened(disk) as engine:
        for number in range(40):
            engine.send("t", b"%d" % number * 100)
            before = engine.stats().position
            positions.append(before)
            made = shipped(disk)
            assert made.position == before
            assert shipped(disk).shipped_bytes == 0
        last = names(disk)[-1].split("-")[1]
        assert len({name.split("-")[1] for name in names(disk)}) > 1
        for name in names(disk):
            _, base, start, _, _ = name.split("-")
            assert base in (start, last)
        expected = bodies(engine, "t")
    with restored(disk) as other:
        assert bodies(other, "t") == expected
    with restored(disk, "then", to=positions[20]) as other:
        assert bodies(other, "t") == expected[:21]


def sent(engine: fmq.Engine, first: int, end: int) -> None:
    for number in range(first, end):
        engine.send("t", b"%d" % number * 300)
        engine.sync()


def test_retention_keeps_unshipped_segments_up_to_a_limit(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = CrashDisk()
    with opened(disk, retain_bytes=8192) as engine:
        sent(engine, 0, 5)
        shipped(disk, keep_bytes=30_000)
        sent(engine, 5, 25)
        kept = engine.stats().kept
        assert kept is not None
        assert "the shipping to shipped" in kept.by
        assert engine.queues("t")[0].first == 0
        assert shipped(disk, keep_bytes=30_000).position == engine.stats().position
        sent(engine, 25, 26)
        assert engine.queues("t")[0].first > 0
        assert "retention goes on without" not in caplog.text
        sent(engine, 26, 90)
        assert "retention goes on without the shipping to shipped" in caplog.text
        (queue,) = engine.queues("t")
        with restored(disk, "before") as other:
            assert other.queues("t")[0].next == 25
        shipped(disk, keep_bytes=30_000)
        assert "all is shipped anew" in caplog.text
        assert names(disk, ".ready") == ["00000002.ready"]
        assert {name[:8] for name in names(disk)} == {"00000002"}
        expected = bodies(engine, "t", 0, queue.first)
    with restored(disk) as other:
        assert bodies(other, "t", 0, queue.first) == expected


def test_dropped_segments_are_removed_from_the_place_and_forget_ends_the_hold() -> None:
    disk = CrashDisk()
    with opened(disk, retain_bytes=8192) as engine:
        for number in range(60):
            sent(engine, number, number + 1)
            shipped(disk)
        assert engine.queues("t")[0].first > 0
        assert int(names(disk)[0].split("-")[1]) > 0
        sent(engine, 60, 80)
        assert engine.stats().kept is not None
        assert forget_shipping("data", S, disk=disk)
        assert not forget_shipping("data", S, disk=disk)
        sent(engine, 80, 81)
        assert engine.stats().kept is None
        (queue,) = engine.queues("t")
    with restored(disk) as other:
        assert other.queues("t")[0].next == 60


def test_a_power_cut_leaves_a_clean_prefix_and_the_next_call_goes_on() -> None:
    """At every operation of the disk, in every way, with the start of a new generation."""
    disk = CrashDisk()
    with opened(disk, retain_bytes=12_000) as engine:
        sent(engine, 0, 9)
        shipped(disk, keep_bytes=1)
        (before,) = engine.queues("t")
        with engine.transaction(tx_id="open") as tx:
            tx.send("t", b"undecided")
            tx.prepare()
            cuts: list[CrashDisk] = []
            sent(engine, 9, 14)
            disk.watch(lambda line: cuts.extend(disk.states()))
            shipped(disk, keep_bytes=1)
            disk.watch(None)
            middle = engine.queues("t")[0]
        sent(engine, 14, 60)
        disk.watch(lambda line: cuts.extend(disk.states()))
        shipped(disk, keep_bytes=1)
        disk.watch(None)
        assert names(disk, ".ready") == ["00000002.ready"]
        (after,) = engine.queues("t")
    assert len(cuts) > 100
    for cut in cuts:
        with restored(cut) as other:
            (queue,) = other.queues("t")
            # A round ships segment by segment, so it may end with any of them.
            assert before.next <= queue.next <= middle.next or queue.next == after.next
            number = 0
            for each in other.read("t", offset=queue.first, limit=9999):
                if each.body != b"undecided":
                    number = int(each.body[: len(each.body) // 300])
                    assert each.offset in (number, number + 1)
    for cut in cuts[:: max(1, len(cuts) // 40)]:
        with opened(cut, retain_bytes=12_000) as engine:
            last = engine.queues("t")[0].next
            shipped(cut, keep_bytes=1)
            with restored(cut, "second") as other:
                assert other.queues("t")[0].next == last
            assert not names(cut, ".new")


def test_erased_messages_are_gone_from_the_place_after_the_next_call() -> None:
    disk = CrashDisk()
    with opened(disk) as engine:
        for number in range(20):
            engine.send("t", b"%03d" % number * 100, key=f"k{number % 2}")
            shipped(disk)
        engine.erase("t", key="k1")
        shipped(disk)
        expected = bodies(engine, "t")
    directory = disk.directory(S, make=False)
    for name in names(disk):
        file = directory.open(name)
        assert b"003003" not in file.read(0, file.size())
    with restored(disk) as other:
        assert bodies(other, "t") == expected
        assert expected[3] == b""


def of_another_store(disk: CrashDisk) -> None:
    with fmq.open("else", disk=disk, clock=FakeClock(), background=False) as other:
        other.send("t", b"x")
    fmq.ship("else", S, disk=disk)


def with_another_file(disk: CrashDisk) -> None:
    disk.directory(S, make=True).create("letter.txt").close()


def after_another_way(disk: CrashDisk) -> None:
    """Ship a journal that was restored from an older copy: the place is ahead of it."""
    with opened(disk) as engine:
        engine.send("t", b"2")
    shipped(disk)
    fmq.restore("before", "again", disk=disk)
    with fmq.open("again", disk=disk, clock=FakeClock(), background=False) as engine:
        engine.send("t", b"another")
    for name in disk.directory("data", make=False).names():
        if name.endswith(".seg"):
            file = disk.directory("again", make=False).open(name)
            data = file.read(0, file.size())
            disk.directory("data", make=False).open(name, write=True).write(0, (data,), sync=True)


@pytest.mark.parametrize("damage", [of_another_store, with_another_file, after_another_way])
def test_ship_overwrites_no_file_that_it_did_not_write(damage: Any) -> None:
    disk = CrashDisk()
    with opened(disk) as engine:
        engine.send("t", b"1")
    fmq.backup("data", "before", disk=disk, clock=FakeClock())
    damage(disk)
    before = disk.directory(S, make=False).names()
    with pytest.raises((BackupRefused, Damaged)):
        shipped(disk)
    assert {*before} <= {*disk.directory(S, make=False).names()}


def test_a_directory_without_a_journal_is_refused() -> None:
    disk = CrashDisk()
    disk.directory("data", make=True)
    with pytest.raises(NotAStore):
        shipped(disk)


def test_two_tools_do_not_ship_to_one_place() -> None:
    disk = CrashDisk()
    with opened(disk) as engine:
        engine.send("t", b"1")
        lock = disk.directory(S, make=True).create("SHIP.lock")
        assert lock.pin(exclusive=True)
        with pytest.raises(BackupRefused, match="another process ships"):
            shipped(disk)


def test_a_lost_piece_is_refused_unless_it_was_the_last() -> None:
    disk = CrashDisk()
    with opened(disk) as engine:
        for number in range(30):
            sent(engine, number, number + 1)
            shipped(disk)
        there = names(disk)
        directory = disk.directory(S, make=False)
        for name in there[:-1]:
            file = directory.open(name)
            data = file.read(0, file.size())
            directory.remove(name)
            with pytest.raises((Damaged, BackupRefused)):
                fmq.restore(S, "broken", disk=disk)
            directory.create(name).write(0, (data,), sync=True)
        directory.remove(there[-1])
    with restored(disk) as other:
        assert other.queues("t")[0].next == 29


def test_a_damaged_piece_is_found_before_anything_has_its_name() -> None:
    disk = CrashDisk()
    with opened(disk) as engine:
        sent(engine, 0, 30)
        shipped(disk)
    name = names(disk)[1]
    disk.directory(S, make=False).open(name, write=True).write(700, (b"\xff",), sync=True)
    with pytest.raises(Damaged):
        fmq.restore(S, R, disk=disk)
    there = disk.directory(R, make=False).names()
    assert [name for name in there if not name.endswith(".new")] == []


def test_a_first_shipping_that_was_interrupted_is_not_restored() -> None:
    disk = CrashDisk()
    with opened(disk) as engine:
        sent(engine, 0, 30)
        shipped(disk)
    disk.directory(S, make=False).remove("00000001.ready")
    with pytest.raises(BackupRefused, match="Run fmq ship once more"):
        fmq.restore(S, R, disk=disk)
    shipped(disk)
    restored(disk).close()


def test_a_holder_that_cannot_be_read_holds_nothing() -> None:
    disk = CrashDisk()
    with opened(disk, retain_bytes=8192) as engine:
        sent(engine, 0, 5)
        shipped(disk)
        directory = disk.directory("data", make=False)
        (name,) = [each for each in directory.names() if each.startswith("SHIPPING.")]
        said = json.loads(directory.open(name).read(0, 4096))
        assert (said["destination"], said["keep_bytes"]) == (S, 1 << 30)
        directory.open(name, write=True).write(0, (b"\0" * 10,), sync=True)
        sent(engine, 5, 40)
        assert engine.queues("t")[0].first > 0


def test_shipped_files_are_a_prefix_after_a_kill_of_engine_or_tool(tmp_path: Path) -> None:
    """`python tools/kill_ship.py DIR --kills 50` does it for longer."""
    print(said_by("kill_ship", tmp_path, "--kills", 3, "--seed", 5))
