"""A reader tells segments that retention has dropped from those that are missing."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

import pytest

import fmq
from fmq import ReadOnlyEngine
from fmq.errors import (
    Closed,
    Damaged,
    NotAStore,
    OffsetGone,
)
from fmq.testing import CrashDisk, PowerLoss
from tests.read_only.looking import looking
from tests.small import FakeClock, bodies, content, fill, opened, remove, segments


@pytest.mark.parametrize("undecided", [True, False])
def test_a_missing_first_segment_is_damage_and_not_retention(undecided: bool) -> None:
    disk = CrashDisk()
    with opened(disk) as engine:
        if undecided:
            tx = engine.transaction(tx_id="U")
            tx.send("t", b"u")
            tx.prepare()
        for _ in range(3):
            fill(engine, "t")
        last = len(bodies(engine, "t")) - 1
    first, *_ = segments(disk)
    remove(disk, first)
    with looking(disk) as reader:
        assert reader.damage is not None
        assert "missing" in reader.damage.reason
        with pytest.raises(Damaged):
            reader.undecided()
        with pytest.raises(Damaged):
            reader.outcome("U")
        assert bodies(reader, "t", offset=last)  # what is there can be read


def test_messages_of_a_missing_first_segment_raise_damaged() -> None:
    """If told of retention, a program would go on after messages that it never saw."""
    disk = CrashDisk()
    with opened(disk) as engine:
        engine.send("early", b"e")
        engine.transaction(tx_id="U").prepare()
        for number in range(60):
            engine.send("t", b"%d" % number + b"x" * 100)
    first, *_ = segments(disk)
    remove(disk, first)
    with looking(disk) as reader:
        found = [bodies(reader, "t", offset=offset) for offset in range(59, 61)]
        assert [len(each) for each in found] == [1, 0]
        for _ in range(2):
            for look in (
                lambda: reader.read("t"),
                lambda: reader.read_batch("t"),
                lambda: reader.read("t", offset=5),
                lambda: reader.read("early"),
                lambda: reader.read("never"),
                reader.queues,
                lambda: reader.queues("t"),
                reader.groups,
            ):
                with pytest.raises(Damaged, match="missing"):
                    look()
        lowest = next(at for at in range(60) if not isinstance(attempt(reader, at), Damaged))
        assert 0 < lowest < 60
        assert len(bodies(reader, "t", offset=lowest)) == 60 - lowest


def attempt(reader: ReadOnlyEngine, offset: int) -> object:
    try:
        return reader.read("t", offset=offset, limit=1)
    except (Damaged, OffsetGone) as error:
        return error


def test_a_missing_first_segment_hides_nothing_of_a_checkpoint() -> None:
    disk = CrashDisk()
    with opened(disk) as engine:
        for _ in range(3):
            fill(engine, "t")
        queues = engine.queues()
    first, *_ = segments(disk)
    remove(disk, first)
    with looking(disk) as reader:
        assert reader.damage is not None
        assert reader.queues() == queues
        assert reader.read("never") == []
        with pytest.raises(Damaged):
            reader.read("t")


def refuses_for_good(reader: ReadOnlyEngine, reason: str) -> None:
    """Every call says `reason`, and so does the next; nothing that was there before is shown."""
    for _ in range(2):
        for call in (
            reader.refresh,
            lambda: reader.read("t"),
            lambda: reader.read_batch("t", limit=1),
            reader.queues,
            reader.groups,
            reader.undecided,
            lambda: reader.outcome("T"),
        ):
            with pytest.raises(NotAStore, match=reason):
                call()


@pytest.mark.parametrize("before", [1, 30])
@pytest.mark.parametrize("behind", [1, 30])
def test_a_directory_that_is_emptied_and_begun_anew_is_refused(before: int, behind: int) -> None:
    """This holds with and without a refresh in between. A later reader sees the new one."""
    for looked_between in (True, False):
        disk = CrashDisk()
        with opened(disk) as engine:
            for number in range(before):
                engine.send("t", b"old %d" % number + b"x" * 400)
        with looking(disk) as reader:
            assert len(bodies(reader, "t")) == before
            remove(disk, *content(disk))
            if looked_between:
                refuses_for_good(reader, "has been removed")
            with opened(disk) as engine:
                for number in range(behind):
                    engine.send("t", b"new %d" % number + b"x" * 400)
            refuses_for_good(reader, "removed" if looked_between else "replaced by another one")
        with pytest.raises(Closed):
            reader.read("t")
        with looking(disk) as reader:
            assert len(bodies(reader, "t")) == behind


def test_a_directory_that_is_removed_is_refused(tmp_path: Path) -> None:
    with fmq.open(tmp_path / "d", background=False) as engine:
        engine.send("t", b"0")
    with fmq.open(tmp_path / "d", read_only=True) as reader:
        assert bodies(reader, "t") == [b"0"]
        shutil.rmtree(tmp_path / "d")
        refuses_for_good(reader, "has been removed")


@pytest.mark.parametrize("rounds", [1, 2])
def test_a_retention_that_no_checkpoint_knows_is_not_damage(rounds: int) -> None:
    """The STATE at the tail is proven durable, because what it says was dropped is gone.

    Method: end with the STATE of a retention, the first one or a later one, and remove the
    checkpoints, which are derived.
    """
    disk = CrashDisk()
    with opened(disk, retain_bytes=8192) as engine:
        for _ in range(rounds):
            before = engine.stats().first_position
            while engine.stats().first_position == before:
                engine.send("t", b"x" * 500)
        expected = engine.queues("t"), engine.undecided()
    remove(disk, "checkpoint.0", "checkpoint.1")
    with looking(disk) as reader:
        assert reader.damage is None
        assert (reader.queues("t"), reader.undecided()) == expected
        first = expected[0][0].first
        assert len(bodies(reader, "t", offset=first)) == expected[0][0].next - first
        reader.refresh()
        assert reader.damage is None


def test_a_retention_that_recovery_finishes_is_not_damage() -> None:
    """Method: kill the writer at every operation of a retention. Open one reader before recovery
    removes what the STATE says was dropped, and another one after it.
    """
    clock = FakeClock()
    keeping = {"checkpoint_bytes": 1 << 40, "checkpoint_idle_seconds": 1e9}
    finished = 0
    for crash_at in range(60):
        disk = CrashDisk()
        with opened(disk, clock, **keeping) as engine:
            for _ in range(20):
                engine.send("t", b"x" * 500)
        disk = disk.after_kill(crash_at=crash_at)
        with suppress(PowerLoss):
            with opened(disk, clock, retain_bytes=4096, **keeping) as engine:
                engine.send("t", b"more")
            break
        left = disk.after_kill()
        with looking(left) as early, opened(left, clock, **keeping) as engine:
            finished += len(segments(left)) < len(segments(disk.after_kill()))
            with looking(left) as late:
                for reader in early, late:
                    (shown,), (there,) = reader.queues("t"), engine.queues("t")
                    assert reader.damage is None, crash_at
                    assert shown.first == there.first, crash_at
                    assert reader.undecided() == []
                    assert bodies(reader, "t", offset=shown.first), crash_at
    assert finished


def test_a_missing_segment_that_no_state_record_names_is_damage() -> None:
    disk = CrashDisk()
    with opened(disk, retain_bytes=8192) as engine:
        while engine.stats().first_position == 0:
            engine.send("t", b"x" * 500)
    remove(disk, "checkpoint.0", "checkpoint.1", segments(disk)[0])
    with looking(disk) as reader:
        assert reader.damage is not None
        assert "missing" in reader.damage.reason
