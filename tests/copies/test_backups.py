"""A backup is the journal at one instant, and a directory made of it shows what it showed."""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import fmq
from fmq.errors import BackupRefused, BadOption, Damaged, NotAStore
from fmq.testing import CrashDisk, FakeClock, FaultDisk
from tests.recovery.sights import IDS, OPTIONS, seen, work
from tests.small import bodies, fill, flip, opened

B, R = "backup", "restored"


def backed_up(disk: Any, **named: Any) -> fmq.Backup:
    return fmq.backup("data", B, disk=disk, clock=FakeClock(), **named)


def restored(disk: Any, path: str = R, **named: Any) -> fmq.Engine:
    """The engine of a directory made of the backup."""
    fmq.restore(B, path, disk=disk, **named)
    assert fmq.check(path, disk=disk).ok
    return fmq.open(path, disk=disk, clock=FakeClock(), background=False)


def files_at(disk: CrashDisk, path: str) -> dict[str, bytes]:
    directory = disk.directory(path, make=False)
    return {name: _content(directory.open(name)) for name in directory.names()}


def _content(file: Any) -> bytes:
    data: bytes = file.read(0, file.size())
    return data


def test_a_restore_of_a_backup_shows_what_the_engine_showed() -> None:
    """Every kind of record, over several segments, some of it undecided. The engine goes on."""
    disk = CrashDisk()
    with opened(disk, **OPTIONS) as engine:
        work(engine)
        shown = seen(engine)
        made = backed_up(disk)
        assert made.position == engine.stats().position
        assert not made.problems
        fill(engine)
        engine.decide("open", "commit")
    with restored(disk) as other:
        assert seen(other) == shown
        other.decide("open", "rollback")


def test_a_restore_has_groups_marks_and_delayed_messages() -> None:
    disk, clock = CrashDisk(), FakeClock()
    with opened(disk, clock) as engine:
        engine.create_group("g", "t")
        for number in range(4):
            engine.send("t", b"%d" % number)
        engine.send("later", b"d", delay=600.0)
        with engine.transaction() as tx:
            tx.mark("m", 7, b"data")
        with engine.consumer("t", group="g") as consumer:
            one, two, *_ = consumer.poll()
            one.ack()
            two.reject("bad")
        backed_up(disk)
    with restored(disk) as other:
        assert other.mark("m") == (7, b"data")
        assert [each.topic for each in other.delayed()] == ["later"]
        assert [each.body for each in other.dead_letters("g").list()] == [b"1"]
        with other.consumer("t", group="g") as consumer:
            assert sorted(each.message.body for each in consumer.poll()) == [b"2", b"3"]


def test_a_second_backup_copies_only_what_is_new() -> None:
    disk = CrashDisk()
    with opened(disk) as engine:
        for number in range(30):
            engine.send("t", b"%d" % number * 300)
        first = backed_up(disk)
        assert first.copied_bytes == first.bytes
        assert backed_up(disk).copied_bytes == 0
        before = engine.stats().position
        engine.send("t", b"new")
        second = backed_up(disk)
        assert second.copied_bytes == engine.stats().position - before
        expected = bodies(engine, "t")
    with restored(disk) as other:
        assert bodies(other, "t") == expected


def test_a_backup_can_be_read_like_any_journal() -> None:
    disk = CrashDisk()
    with opened(disk, **OPTIONS) as engine:
        work(engine)
        backed_up(disk)
        expected = bodies(engine, "t", 0)
    assert fmq.check(B, disk=disk).ok
    with fmq.open(B, disk=disk, read_only=True) as reader:
        # Nothing that lies in a journal proves its last append.
        assert bodies(reader, "t", 0) == expected[:-1]


def test_messages_that_retention_drops_leave_the_backup_too() -> None:
    disk, clock = CrashDisk(), FakeClock()
    with opened(disk, clock, retain_bytes=8192) as engine:
        for number in range(10):
            engine.send("t", b"%d" % number * 900)
        backed_up(disk)
        for number in range(10):
            engine.send("t", b"%d" % number * 900)
            engine.sync()
        backed_up(disk)
        (queue,) = engine.queues("t")
        expected = bodies(engine, "t", 0, queue.first)
        assert queue.first > 0
    with restored(disk) as other:
        (again,) = other.queues("t")
        assert (again.first, bodies(other, "t", 0, again.first)) == (queue.first, expected)


def test_retention_drops_no_segment_while_a_backup_copies_it() -> None:
    """Method: let retention come due after the first part was copied."""
    disk, clock = CrashDisk(), FakeClock()
    with opened(disk, clock, retain_seconds=60.0, keep_unread=False) as engine:
        for number in range(10):
            engine.send("t", b"%d" % number * 900)
        expected = bodies(engine, "t")

        def meanwhile(done: int, total: int) -> None:
            clock.advance(3600)
            engine.send("t", b"x")
            engine.sync()

        backed_up(disk, progress=meanwhile)
        engine.sync()
        assert engine.queues("t")[0].first > 0, "it dropped them after that"
    with restored(disk) as other:
        assert bodies(other, "t") == expected


def test_a_restore_to_a_position_or_time_shows_what_a_reader_was_shown_then() -> None:
    """The messages, groups with their acks, undecided transactions and outcomes of each moment."""
    disk, clock = CrashDisk(), FakeClock()
    moments: list[tuple[int, datetime, dict[str, object]]] = []
    with opened(disk, clock, queues=2) as engine:

        def note() -> None:
            now = datetime.fromtimestamp(clock.time_us() / 1e6, UTC)
            with fmq.open("data", disk=disk, read_only=True) as reader:
                moments.append((engine.stats().position, now, seen(reader)))
            clock.advance(10)

        for number, tx_id in enumerate(IDS):
            engine.send("t", b"%d" % number * 300)
            note()
            tx = engine.transaction(tx_id=tx_id)
            tx.send_many("t", [b"%d" % number] * 3)
            tx.prepare()
            note()
            if number % 3:
                tx.commit()
                note()
            elif number:
                tx.rollback()
                note()
            with engine.consumer("t", group="g") as consumer:
                consumer.poll()[0].ack()
            note()
        backed_up(disk)
    assert len({repr(sight) for *_, sight in moments}) == len(moments)
    for number, (position, time, sight) in enumerate(moments):
        for what, to in (
            ("p", position),
            ("p+7", position + 7),
            ("t", time + timedelta(seconds=5)),
        ):
            if type(to) is int and to > moments[-1][0]:
                continue
            with restored(disk, f"{what} {number}", to=to) as other:
                assert seen(other) == sight


@pytest.mark.parametrize("to", [-1, 63, True, 1.5, "now", 1 << 40])
def test_a_limit_that_the_backup_does_not_reach_is_refused(to: Any) -> None:
    disk = CrashDisk()
    with opened(disk) as engine:
        engine.send("t", b"1")
        backed_up(disk)
    with pytest.raises(BadOption, match="holds the positions"):
        fmq.restore(B, R, to=to, disk=disk)


def test_a_moment_that_needs_dropped_segments_is_refused() -> None:
    disk, clock = CrashDisk(), FakeClock()
    with opened(disk, clock, retain_bytes=8192) as engine:
        for _ in range(20):
            engine.send("t", b"x" * 900)
            engine.sync()
        first = engine.stats().first_position
        assert first > 0
        backed_up(disk)
    with pytest.raises(BackupRefused, match="Name a later position"):
        fmq.restore(B, R, to=first + 1000, disk=disk)
    with pytest.raises(NotAStore):
        fmq.open(R, disk=disk, read_only=True)


def of_another_store(disk: CrashDisk) -> None:
    with fmq.open("other", disk=disk, background=False) as engine:
        engine.send("t", b"1")
    fmq.backup("other", B, disk=disk)


def with_an_engine(disk: CrashDisk) -> None:
    fmq.open(B, disk=disk, background=False).close()


def with_another_file(disk: CrashDisk) -> None:
    disk.directory(B, make=True).create("notes.txt")


def newer(disk: CrashDisk) -> None:
    """The journal was restored from an older backup."""
    with opened(disk) as engine:
        engine.send("t", b"1" * 100)
        backed_up(disk)
        engine.send("t", b"2")
        older = dict(files_at(disk, B))
    backed_up(disk)
    directory = disk.directory("data", make=False)
    for name in directory.names():
        directory.remove(name)
    for name, data in older.items():
        if name.endswith(".seg"):
            directory.create(name).write(0, (data,), sync=True)
    directory.sync()


def of_another_way(disk: CrashDisk) -> None:
    """The journal was restored from an older backup, and went on to a higher position."""
    newer(disk)
    with opened(disk) as engine:
        engine.send("t", b"3" * 1000)


@pytest.mark.parametrize(
    ("prepare", "says"),
    [
        (of_another_store, "of another journal"),
        (with_an_engine, "an engine writes"),
        (with_another_file, "notes.txt"),
        (newer, "an older copy"),
        (of_another_way, "another way"),
    ],
)
def test_a_backup_overwrites_no_file_that_it_did_not_write(
    prepare: Callable[[CrashDisk], None], says: str
) -> None:
    disk = CrashDisk()
    prepare(disk)
    with opened(disk) as engine:
        engine.sync()
    before = files_at(disk, B)
    before.pop("BACKUP.lock", None)
    with pytest.raises(BackupRefused, match=says):
        backed_up(disk)
    after = files_at(disk, B)
    after.pop("BACKUP.lock", None)
    assert after == before


def test_two_runs_do_not_write_to_one_backup() -> None:
    disk = CrashDisk()
    with opened(disk) as engine:
        engine.send("t", b"1")

        def meanwhile(done: int, total: int) -> None:
            with pytest.raises(BackupRefused, match="another process"):
                backed_up(disk)

        backed_up(disk, progress=meanwhile)


def test_a_directory_without_a_journal_has_no_backup() -> None:
    disk = CrashDisk()
    disk.directory("data", make=True)
    with pytest.raises(NotAStore, match="nothing to back up"):
        backed_up(disk)
    with pytest.raises(BackupRefused, match="it is no backup"):
        fmq.restore("data", R, disk=disk)


def test_a_journal_is_not_restored_over_another() -> None:
    disk = CrashDisk()
    with opened(disk) as engine:
        engine.send("t", b"1")
        backed_up(disk)
    with pytest.raises(BackupRefused, match="new or empty"):
        fmq.restore(B, "data", disk=disk)


def test_each_run_copies_damage_as_it_is_and_reports_it() -> None:
    """All else is whole. The damaged segment is copied again, in case it has been put right."""
    disk = CrashDisk()
    with opened(disk) as engine:
        for number in range(20):
            engine.send("t", b"%d" % number * 300)
        engine.checkpoint()
        flip(disk, "00000000000000000000.seg", 500)
        made = backed_up(disk)
        assert [each.split(",")[0] for each in made.problems] == ["00000000000000000000.seg"]
        assert backed_up(disk).problems == made.problems
        flip(disk, "00000000000000000000.seg", 500)
        assert not backed_up(disk).problems


def test_damage_in_a_backup_is_found_before_anything_has_its_name() -> None:
    disk = CrashDisk()
    with opened(disk) as engine:
        for number in range(20):
            engine.send("t", b"%d" % number * 300)
        backed_up(disk)
    file = disk.directory(B, make=False).open("00000000000000004096.seg", write=True)
    file.write(700, (b"?",), sync=True)
    with pytest.raises(Damaged, match=r"00000000000000004096\.seg"):
        fmq.restore(B, R, disk=disk)
    with pytest.raises(NotAStore):
        fmq.open(R, disk=disk, read_only=True)


@pytest.mark.parametrize("data", [b"", b"00000000\n{}", b"nonsense", b"\xff" * 40])
def test_a_damaged_list_of_contents_is_no_empty_backup(data: bytes) -> None:
    disk = CrashDisk()
    with opened(disk) as engine:
        engine.send("t", b"1")
        backed_up(disk)
        directory = disk.directory(B, make=False)
        directory.remove("BACKUP")
        directory.create("BACKUP").write(0, (data,), sync=True)
        with pytest.raises(Damaged, match="BACKUP"):
            backed_up(disk)


# --- crashes ------------------------------------------------------------------------------------


def test_a_power_cut_leaves_the_backup_from_before_or_the_new_one() -> None:
    """At every operation of the disk, in every way. Another run makes it whole."""
    disk = CrashDisk()
    with opened(disk, retain_bytes=12_000) as engine:
        for number in range(12):
            engine.send("t", b"%d" % number * 300)
        backed_up(disk)
        first = bodies(engine, "t")
        for number in range(12, 40):
            engine.send("t", b"%d" % number * 150)
            engine.sync()
        (queue,) = engine.queues("t")
        last = bodies(engine, "t", 0, queue.first)
    cuts: list[CrashDisk] = []
    disk.watch(lambda line: cuts.extend(disk.states()))
    backed_up(disk)
    disk.watch(None)
    assert len(cuts) > 100
    for cut in cuts:
        with restored(cut) as other:
            (again,) = other.queues("t")
            assert bodies(other, "t", 0, again.first) in (first, last)
    for cut in cuts[:: max(1, len(cuts) // 40)]:
        backed_up(cut)
        with restored(cut, "second") as other:
            assert bodies(other, "t", 0, queue.first) == last


@pytest.mark.parametrize("retained", [None, 8192])
def test_a_power_cut_in_a_restore_leaves_the_whole_journal_or_none(retained: int | None) -> None:
    """Also if the journal does not begin with its first segment any more."""
    disk = CrashDisk()
    with opened(disk, retain_bytes=retained) as engine:
        for number in range(30):
            engine.send("t", b"%d" % number * 300)
            engine.sync()
        first = engine.queues("t")[0].first
        assert bool(first) == bool(retained)
        expected = bodies(engine, "t", 0, first)
    backed_up(disk)
    cuts: list[CrashDisk] = []
    disk.watch(lambda line: cuts.extend(disk.states()))
    fmq.restore(B, R, disk=disk)
    disk.watch(None)
    whole = 0
    for cut in cuts:
        with suppress(NotAStore, Damaged), fmq.open(R, disk=cut, background=False) as engine:
            if engine.queues("t"):
                assert bodies(engine, "t", 0, engine.queues("t")[0].first) == expected
                whole += 1
    assert whole


@pytest.mark.parametrize("operation", ["create", "write", "sync", "rename", "allocate", "read"])
def test_an_error_of_the_disk_leaves_a_backup_that_another_run_makes_whole(operation: Any) -> None:
    disk = CrashDisk()
    with opened(disk) as engine:
        for number in range(20):
            engine.send("t", b"%d" % number * 300)
        expected = bodies(engine, "t")
        for nth in range(40):
            faults = FaultDisk(disk)
            faults.fail(operation, nth=nth, error=errno.EIO)
            with suppress(fmq.FmqError, OSError):
                fmq.backup("data", f"B{nth}", disk=faults)
            fmq.backup("data", f"B{nth}", disk=disk)
            fmq.restore(f"B{nth}", f"R{nth}", disk=disk)
            with fmq.open(f"R{nth}", disk=disk, background=False) as other:
                assert bodies(other, "t") == expected


def test_a_backup_of_a_killed_engine_holds_what_was_acknowledged() -> None:
    disk = CrashDisk()
    with opened(disk) as engine:
        for number in range(20):
            engine.send("t", b"%d" % number * 300)
        expected = bodies(engine, "t")
        killed = disk.after_kill()
    backed_up(killed)
    with restored(killed) as other:
        assert bodies(other, "t") == expected
