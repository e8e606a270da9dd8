"""A directory at rest whose checkpoints cannot be used hides nothing from readers in silence."""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import fmq
from fmq import ReadOnlyEngine
from fmq.errors import FmqError
from fmq.machine.disk import Disk
from fmq.store.journal.durable_page import PAGE
from fmq.testing import CrashDisk, FakeClock, FaultDisk, PowerLoss
from tests.small import bodies, content, flip, opened, remove

SLOTS = ("checkpoint.0", "checkpoint.1")
SENT = [b"%d" % number for number in range(300)]
QUIET: dict[str, Any] = {"checkpoint_bytes": 1 << 40, "checkpoint_idle_seconds": 1e9}
"""An engine that takes no checkpoint but those that a test asks for."""


def looking(disk: Disk) -> ReadOnlyEngine:
    return fmq.open("data", read_only=True, disk=disk, clock=FakeClock())


def at_rest(sync: str) -> CrashDisk:
    """A closed directory of one segment, whose last checkpoint alone knows how it ends."""
    disk = CrashDisk()
    with opened(disk, sync=sync, segment_bytes=1 << 20, **QUIET) as engine:
        engine.send_many("t", SENT[:50])
        engine.checkpoint()
        engine.send_many("t", SENT[50:100])
        engine.checkpoint()
        for body in SENT[100:]:
            engine.send("t", body)
    assert set(SLOTS) <= content(disk).keys()
    return disk


def newest(disk: CrashDisk) -> str:
    """The slot with the larger generation."""
    files = content(disk)
    return max(SLOTS, key=lambda name: int.from_bytes(files[name][16:24], "little"))


def without_page(disk: CrashDisk) -> CrashDisk:
    """The directory as readers see it that do not believe the page of an engine that is gone."""
    remove(disk, PAGE)
    return disk


def flipped(disk: CrashDisk) -> Disk:
    for name in SLOTS:
        flip(disk, name, 40)
    return disk


def newest_flipped(disk: CrashDisk) -> Disk:
    flip(disk, newest(disk), 40)
    return disk


def gone(disk: CrashDisk) -> Disk:
    remove(disk, *SLOTS)
    return disk


def newest_gone(disk: CrashDisk) -> Disk:
    remove(disk, newest(disk))
    return disk


def forbidden(disk: CrashDisk) -> Disk:
    faults = FaultDisk(disk)
    faults.fail("open", error=errno.EACCES, persistently=True, names="*checkpoint.?")
    return faults


LOSSES = {each.__name__: each for each in (flipped, newest_flipped, gone, newest_gone, forbidden)}


def read_all(disk: Disk) -> list[bytes]:
    with looking(disk) as reader:
        return bodies(reader, "t")


def as_table(disk: Disk) -> list[bytes]:
    fmq_table = pytest.importorskip("fmq.table")
    rows = fmq_table.read("data", columns=["body"], disk=disk).read_all()
    return [row["body"] for row in rows.to_pylist()]


READS: list[Callable[[Disk], list[bytes]]] = [read_all, as_table]


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("sync", ["always", "interval", "never"])
@pytest.mark.parametrize("loss", LOSSES)
def test_checkpoint_lost_names_the_slots_and_the_remedy(
    read: Callable[[Disk], list[bytes]], loss: str, sync: str
) -> None:
    """No reader shows less than was durable. One opening for writing repairs it."""
    disk = at_rest(sync)
    assert read(disk) == SENT
    bad = LOSSES[loss](disk)
    with pytest.raises(FmqError) as caught:
        read(bad)
    error = caught.value
    assert type(error).__name__ == "CheckpointLost"
    named = [name for name in SLOTS if name in str(error)]
    assert len(named) == (1 if loss.startswith("newest") else 2)
    assert "fmq.open(path).close()" in str(error)
    opened(disk).close()
    assert read(disk) == SENT
    report = fmq.check("data", disk=disk)
    assert report.ok, report.problems


@pytest.mark.parametrize("sync", ["always", "interval", "never"])
@pytest.mark.parametrize("loss", LOSSES)
def test_check_reports_lost_slots(loss: str, sync: str) -> None:
    disk = at_rest(sync)
    assert fmq.check("data", disk=disk).ok
    report = fmq.check("data", disk=LOSSES[loss](disk))
    assert not report.ok
    assert {problem.file for problem in report.problems} <= set(SLOTS)
    assert report.messages == len(SENT)


@pytest.mark.parametrize("loss", LOSSES)
def test_permissive_tables_list_what_they_leave_out(loss: str) -> None:
    """Proven rows are given, and the view `damage` lists the rest with its reason."""
    fmq_table = pytest.importorskip("fmq.table")
    disk = LOSSES[loss](at_rest("always"))
    rows = fmq_table.read("data", disk=disk, permissive=True).read_all().to_pylist()
    found = [row["body"] for row in rows]
    assert found == SENT[: len(found)]
    assert len(found) < len(SENT)
    (row,) = fmq_table.read("data", "damage", disk=disk).read_all().to_pylist()
    assert row["position"] > max(row["position"] for row in rows)
    assert row["skipped_bytes"] > 0
    assert "checkpoint" in row["reason"]


@pytest.mark.parametrize("read", READS)
def test_damage_in_the_older_slot_hides_nothing(read: Callable[[Disk], list[bytes]]) -> None:
    """The newer one says where the journal ends."""
    disk = at_rest("never")
    (older,) = set(SLOTS) - {newest(disk)}
    flip(disk, older, 40)
    assert read(disk) == SENT
    assert fmq.check("data", disk=disk).ok


@pytest.mark.parametrize("read", READS)
def test_after_a_kill_with_sound_slots_a_reader_shows_proven_messages(
    read: Callable[[Disk], list[bytes]],
) -> None:
    disk = CrashDisk()
    with opened(disk, segment_bytes=1 << 20, **QUIET) as engine:
        engine.send("t", b"0")
        engine.checkpoint()
        for number in range(1, 10):
            engine.send("t", b"%d" % number)
        left = without_page(disk.after_kill())
    assert read(left) == [b"%d" % number for number in range(9)]


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("loss", LOSSES)
def test_beside_a_writer_a_reader_shows_proven_messages(
    read: Callable[[Disk], list[bytes]], loss: str
) -> None:
    """The writer's next checkpoint proves the rest."""
    disk = at_rest("always")
    bad = LOSSES[loss](disk)
    with opened(disk, segment_bytes=1 << 20, **QUIET) as engine:
        engine.send("t", b"more")
        engine.send("t", b"and more")
        found = read(bad)
        assert found == [*SENT, b"more", b"and more"][: len(found)]
        engine.checkpoint()
        assert read(disk) == [*SENT, b"more", b"and more"]


@pytest.mark.parametrize("read", READS)
def test_a_new_journal_without_a_checkpoint_shows_proven_messages(
    read: Callable[[Disk], list[bytes]],
) -> None:
    """It has no slots and no part of an index, so no checkpoint was ever taken."""
    disk = CrashDisk()
    with opened(disk, **QUIET) as engine:
        engine.send("t", b"1")
        engine.send("t", b"2")
        left = without_page(disk.after_kill())
    assert not set(SLOTS) & content(left).keys()
    assert read(left) == [b"1"]
    assert fmq.check("data", disk=left).ok
    opened(left).close()
    assert read(left) == [b"1", b"2"]


def first_checkpoint(disk: CrashDisk, sync: str) -> int:
    """Send, take the first checkpoint, and kill. Return how many operations came before it."""
    with suppress(PowerLoss), opened(disk, sync=sync, segment_bytes=1 << 20, **QUIET) as engine:
        for body in SENT[:5]:
            engine.send("t", body)
        before = disk.operations
        with suppress(FmqError):
            engine.checkpoint()
        disk.stop()
    return before


@pytest.mark.parametrize("sync", ["always", "interval", "never"])
def test_a_journal_can_be_read_wherever_its_first_checkpoint_was_cut_off(sync: str) -> None:
    """No reader takes it for a lost one, whatever the power cut or the kill leaves.

    Method: the power fails at each operation of the first checkpoint, in every way.
    """
    whole = CrashDisk()
    operations = range(first_checkpoint(whole, sync), whole.operations)
    assert len(operations) >= 4, whole.history  # slot, its name, part, its name
    proven = read_all(whole.after_kill())
    assert proven == SENT[:5]
    for crash_at in operations:
        disk = CrashDisk(crash_at=crash_at)
        first_checkpoint(disk, sync)
        for left in (disk.after_kill(), disk.after_kill(written=False), *disk.states()):
            shown = read_all(left)
            assert shown == SENT[: len(shown)], f"{crash_at=} {left.loss}"
            assert fmq.check("data", disk=left).ok, f"{crash_at=} {left.loss}"
            with opened(left, segment_bytes=1 << 20, **QUIET) as engine:
                recovered = bodies(engine, "t")
            assert recovered[: len(shown)] == shown, f"{crash_at=} {left.loss}"
            assert sync != "always" or recovered == SENT[:5], f"{crash_at=} {left.loss}"
            assert read_all(left) == recovered


@pytest.mark.parametrize("loss", [flipped, gone])
def test_a_reader_refuses_a_journal_whose_first_slot_was_lost_later(
    loss: Callable[[CrashDisk], Disk],
) -> None:
    """A sound checkpoint was there, even one of a journal without messages of its own."""
    disk = CrashDisk()
    with opened(disk, segment_bytes=1 << 20, **QUIET) as engine:
        engine.create_group("g", "t")
    with opened(disk, segment_bytes=1 << 20, **QUIET) as engine:
        engine.send_many("t", SENT)
    flip(disk, newest(disk), 40)
    remove(disk, *(set(SLOTS) - {newest(disk)}))
    with pytest.raises(FmqError) as caught:
        read_all(disk)
    assert type(caught.value).__name__ == "CheckpointLost"


def test_a_reader_raises_when_slots_are_lost_after_the_writer_closed() -> None:
    """It shows everything once an engine has opened the directory again."""
    disk = at_rest("never")
    with looking(disk) as reader:
        with opened(disk, sync="never", segment_bytes=1 << 20, **QUIET) as engine:
            engine.send("t", b"more")
            assert bodies(reader, "t")[: len(SENT)] == SENT
        flipped(disk)
        with pytest.raises(FmqError) as caught:
            reader.refresh()
        assert type(caught.value).__name__ == "CheckpointLost"
        opened(disk).close()
        reader.refresh()
        assert bodies(reader, "t") == [*SENT, b"more"]


def test_after_one_opening_no_unusable_slot_refuses_a_reader() -> None:
    """A later kill is not taken for a loss of slots."""
    disk = at_rest("always")
    flipped(disk)
    opened(disk).close()
    with opened(disk, segment_bytes=1 << 20, **QUIET) as engine:
        engine.send("t", b"1")
        engine.send("t", b"2")
        left = without_page(disk.after_kill())
    with suppress(FmqError):
        assert read_all(left) == [*SENT, b"1"]
    assert read_all(left) == [*SENT, b"1"]


def test_an_export_by_arrow_with_lost_slots_is_refused(tmp_path: Path) -> None:
    """Nothing is written, and after one opening for writing everything is exported."""
    pytest.importorskip("pyarrow")
    from fmq.export import export

    shop, archive = tmp_path / "shop", tmp_path / "archive"
    with fmq.open(shop, background=False) as engine:
        engine.send_many("t", SENT)
    for slot in shop.glob("checkpoint.?"):
        slot.write_bytes(slot.read_bytes()[:-1] + b"?")
    with pytest.raises(FmqError, match=r"checkpoint\.\d: its checksum does not match"):
        export(str(shop), str(archive), engine="arrow")
    fmq.open(shop, background=False).close()
    assert export(str(shop), str(archive), engine="arrow").rows == len(SENT)
