"""The page ATTEMPTS: attempts that a kill leaves, although no call has written them."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from fmq import Engine
from fmq.store.bytes.kinds import TriedRange
from fmq.store.journal.attempt_page import ATTEMPTS, ENTRY
from fmq.testing import FaultDisk
from fmq.testing.inside import inside
from tests.small import CrashDisk, FakeClock, check, content, opened, remove


def has_entries(engine: Engine, count: int) -> None:
    """Make the page of `engine` so small that it has room for `count` attempts."""
    inside(engine).writer.attempts._size = count * ENTRY.size


def tried_in(engine: Engine) -> dict[int, int]:
    """Return how often the group "g" has tried each message of "t" that was tried."""
    found = inside(engine).ledger.tried_of("g", "t", 0).all()
    return {at: count for first, end, count, _ in found for at in range(first, end)}


def tried_after(disk: CrashDisk) -> dict[int, int]:
    """Return that for an engine that opens `disk`."""
    with opened(disk) as engine:
        return tried_in(engine)


def test_a_poll_writes_nothing_and_its_attempt_survives_a_kill(disk: CrashDisk) -> None:
    with opened(disk) as engine:
        engine.send_many("t", [b"x"] * 3)
        with engine.consumer("t", group="g") as consumer:
            before = disk.operations
            for number in range(3):
                (delivery,) = consumer.poll(limit=1)
                assert delivery.offset == number
                assert disk.operations == before
                assert tried_after(disk.after_kill()) == dict.fromkeys(range(number + 1), 1)


@pytest.mark.parametrize("entries", [0, 1, 2, 5])
def test_a_full_page_goes_to_the_journal_before_it_is_used_again(
    disk: CrashDisk, entries: int
) -> None:
    with opened(disk, segment_bytes=1 << 16) as engine:
        has_entries(engine, entries)
        engine.send_many("t", [b"x"] * 20)
        with engine.consumer("t", group="g") as consumer:
            known: dict[int, int] = {}
            for number in range(20):
                (delivery,) = consumer.poll(limit=1)
                known[delivery.offset] = 1
                if number % 3 == 2:
                    delivery.ack()
                    del known[delivery.offset]
                assert tried_after(disk.after_kill()) == known


def test_a_page_is_not_used_again_before_its_record_is_written(disk: CrashDisk) -> None:
    with opened(disk) as engine:
        has_entries(engine, 2)
        engine.send_many("t", [b"x"] * 9)
        writer = inside(engine).writer
        with engine.consumer("t", group="g") as consumer:
            consumer.poll(limit=1)
            consumer.poll(limit=1)
            with writer.commit_queue.lock, writer.commit_queue.changing:
                for at in (2, 3, 4):  # the first of them plans a TRIED, which nothing has written
                    writer.count([TriedRange("g", "t", 0, at, at + 1, 1)])
            assert tried_after(disk.after_kill()).items() >= {0: 1, 1: 1}.items()
            engine.send("t", b"y")
            consumer.poll(limit=1)
            assert tried_after(disk.after_kill()) == dict.fromkeys(range(5), 1)


def test_attempts_of_messages_that_were_acked_or_moved_are_not_written(disk: CrashDisk) -> None:
    with opened(disk) as engine:
        has_entries(engine, 2)
        engine.send_many("t", [b"x"] * 9)
        with engine.consumer("t", group="g") as consumer:
            for _ in range(9):
                consumer.poll(limit=1)[0].ack()
            engine.group("g").seek("t", queue=0, offset=4)
            assert tried_after(disk.after_kill()) == {}
            assert consumer.poll(limit=1)[0].attempt == 1
            assert tried_after(disk.after_kill()) == {4: 1}


def test_the_next_engine_has_the_attempts_in_its_own_page(disk: CrashDisk) -> None:
    """What it writes comes after them, although some of them name a position after the end: of an
    append that was never written.
    """
    with opened(disk) as engine:
        engine.send_many("t", [b"x"] * 3)
        with engine.consumer("t", group="g") as consumer:
            consumer.poll(limit=1)
            page, end = inside(engine).writer.attempts, inside(engine).ledger.end
            kept = [*page.noted]
            page.note([TriedRange("g", "t", 0, 1, 2, 1)], end + 500, 0)
            left = disk.after_kill()
            page.noted = kept
    for _ in range(3):
        with opened(left) as engine:
            assert tried_in(engine) == {0: 1, 1: 1}
            left = left.after_kill()
    with opened(left) as engine:
        engine.group("g").seek("t", queue=0, offset=0)
        assert tried_after(left.after_kill()) == {}


def test_attempts_outlive_kill_after_kill_without_a_record(disk: CrashDisk) -> None:
    """Each wait after a kill counts from the last attempt, which no record tells."""
    clock = FakeClock()
    with opened(disk, clock) as engine:
        engine.send("t", b"x")
        with engine.consumer("t", group="g"):
            end, left = inside(engine).journal.position, disk.after_kill()
    for number in range(1, 6):
        with opened(left, clock) as engine, engine.consumer("t", group="g") as consumer:
            assert inside(engine).journal.position == end
            if number > 2:
                assert consumer.poll() == [], "it waits longer each time"
            clock.advance(600)
            (delivery,) = consumer.poll()
            assert delivery.attempt == number
            left = left.after_kill()


def test_a_close_writes_all_attempts_to_the_journal_and_removes_the_page(disk: CrashDisk) -> None:
    with opened(disk) as engine:
        engine.send_many("t", [b"x"] * 3)
        consumer = engine.consumer("t", group="g")
        consumer.poll(limit=2)
        assert ATTEMPTS in content(disk)
    assert ATTEMPTS not in content(disk)
    check(disk)
    for name in content(disk):
        if name.endswith(".part") or name.startswith("checkpoint."):
            remove(disk, name)
    assert tried_after(disk) == {0: 1, 1: 1}


def test_attempts_counted_before_a_checkpoint_survive_a_power_cut(disk: CrashDisk) -> None:
    with opened(disk) as engine:
        engine.send_many("t", [b"x"] * 3)
        with engine.consumer("t", group="g") as consumer:
            consumer.poll(limit=1)
            engine.checkpoint()
            consumer.poll(limit=1)
            assert tried_after(disk.after_power_loss(0)) == {0: 1}
            assert tried_after(disk.after_kill()) == {0: 1, 1: 1}


@pytest.mark.parametrize("at", [0, 3, 4, 20, 40, 63])
def test_a_torn_entry_is_left_out(disk: CrashDisk, at: int) -> None:
    with opened(disk) as engine:
        engine.send_many("t", [b"x"] * 3)
        with engine.consumer("t", group="g") as consumer:
            consumer.poll(limit=1)
            consumer.poll(limit=1)
            words = inside(engine).writer.attempts._words
            words.cast("B")[at] ^= 1
            assert tried_after(disk.after_kill()) == {1: 1}
            words.cast("B")[at] ^= 1


def test_entries_about_missing_queues_groups_and_offsets_are_left_out(disk: CrashDisk) -> None:
    with opened(disk) as engine:
        engine.send_many("t", [b"x"] * 3)
        with engine.consumer("t", group="g") as consumer:
            consumer.poll(limit=1)
            page, end = inside(engine).writer.attempts, inside(engine).ledger.end
            kept = [*page.noted]
            wrong = [("g", "u", 0, 0, 1), ("h", "t", 0, 0, 1), ("g", "t", 7, 0, 1)]
            wrong += [("g", "t", 0, 2, 2), ("g", "t", 0, 2, 1), ("g", "t", 0, 2, 4)]
            page.note([TriedRange(*each, 1) for each in wrong], end, 0)
            assert tried_after(disk.after_kill()) == {0: 1}
            page.noted = kept


def test_without_a_page_attempts_go_to_the_journal(clock: FakeClock) -> None:
    disk = CrashDisk()
    faults: Any = FaultDisk(disk)
    faults.fail("create", names=f"*/{ATTEMPTS}", error=errno.ENOSPC, persistently=True)
    with opened(faults, clock) as engine:
        engine.send_many("t", [b"x"] * 3)
        with engine.consumer("t", group="g") as consumer:
            for number in range(3):
                before = disk.operations
                consumer.poll(limit=1)
                assert disk.operations == before + 1
                assert tried_after(disk.after_kill()) == dict.fromkeys(range(number + 1), 1)
