"""A joint decision and a crash: after it all transactions are decided or none, and nobody has seen
only some, not even a reader that opens the directory before the next engine does.
"""

from __future__ import annotations

import errno
from random import Random

import pytest

import fmq
import fmq.table
from fmq import Mark
from fmq.errors import StorageFull
from fmq.recovery.walk import Walk
from fmq.store.bytes.kinds import Kind
from fmq.table.snapshot import see
from fmq.table.stream import BatchRoom, batch_end
from fmq.testing import CrashDisk, FaultDisk
from fmq.testing.inside import inside
from tests.budget import SEED
from tests.small import bodies, opened
from tests.tx.test_joint_decisions import many, prepare, span


def test_readers_see_none_or_all_at_each_operation_of_the_disk() -> None:
    """The operations of a decision over several segments, beside a reader without a page, too."""
    disk = CrashDisk()
    with opened(disk, checkpoint_bytes=100_000) as engine:
        names = prepare(engine, *many(5), size=1200, also="u")
        engine.send("t", b"before")
        seen: set[tuple[int, ...]] = set()

        def look(_: str) -> None:
            disk.watch(None)
            seen.add((len(bodies(engine, "t")), len(bodies(engine, "u"))))
            for left in (disk, disk.after_kill()):
                seen.add(shown_without_opening(left))
            disk.watch(look)

        disk.watch(look)
        engine.decide_many(names, "commit", mark=("epoch", 1, -1))
        disk.watch(None)
    assert {counts[:2] for counts in seen} <= {(0, 0), (1, 0), (6, 5)}
    assert {counts[2:] for counts in seen if counts[:2] == (6, 5)} <= {(), (1, 5)}
    assert {counts[2:] for counts in seen if counts[:2] != (6, 5)} <= {(), (0, 0)}


def shown_without_opening(disk: CrashDisk) -> tuple[int, ...]:
    """Return how many messages are in both topics, how many marks and committed transactions there
    are, as a read-only engine and tables say.
    """
    with fmq.open("data", read_only=True, disk=disk) as reader:
        shown = len(bodies(reader, "t")), len(bodies(reader, "u"))
        mark = reader.mark("epoch")
        tail = reader.tail(0, limit=1000).messages
        assert len(tail) == sum(shown)
    rows = fmq.table.read("data", disk=disk).read_all().to_pylist()
    assert len(rows) == sum(shown)
    decided = fmq.table.read("data", "transactions", disk=disk).read_all().to_pylist()
    marks = fmq.table.read("data", "marks", disk=disk).read_all().to_pylist()
    assert len(marks) == (mark is not None)
    return *shown, len(marks), sum(row["state"] == "committed" for row in decided)


@pytest.mark.parametrize("count", [2, 20])
@pytest.mark.parametrize("mode", ["kill", "power"])
def test_a_crash_anywhere_leaves_all_decided_or_none(count: int, mode: str) -> None:
    """Whatever was lost, the next engine shows all or none, and goes on. Then the same call ends
    what the crash has left.
    """
    disk, names = CrashDisk(), many(count)
    with opened(disk, checkpoint_bytes=100_000) as engine:
        prepare(engine, *names, size=700 if count < 10 else 120)
        moments: list[CrashDisk] = []
        disk.watch(
            lambda _: moments.append(disk.after_kill() if mode == "kill" else disk.stopped())
        )
        engine.decide_many(names, "commit", mark=("epoch", 1, -1))
        disk.watch(None)
    random = Random(f"{SEED} {count}")
    found = set()
    for moment in moments:
        left = moment if mode == "kill" else moment.after_power_loss(random.randrange(1000))
        engine = opened(left)
        done = len(bodies(engine, "t"))
        assert (engine.mark("epoch") == Mark(1)) == bool(done)
        assert len(engine.undecided()) == count - done
        found.add(done)
        engine.decide_many(names, "commit", mark=("epoch", 1, -1))
        assert [body.strip().decode() for body in bodies(engine, "t")] == names
        engine.close()
        assert fmq.check("data", disk=left).problems == ()
    assert found <= {0, count}


def rolls(count: int, size: int) -> list[CrashDisk]:
    """What kills leave while a decision over `count` transactions goes on in a new segment."""
    disk, made = CrashDisk(), list[CrashDisk]()
    engine = opened(disk, checkpoint_bytes=100_000)
    names = prepare(engine, *many(count), size=size, also="u")

    before = ""

    def look(operation: str) -> None:
        nonlocal before
        if before.startswith("rename") and ".seg" in before:
            made.append(disk.after_kill())
        before = operation

    disk.watch(look)
    engine.decide_many(names, "commit", mark=("epoch", 1, -1))
    disk.watch(None)
    engine.close()
    return made


def incomplete() -> CrashDisk:
    """A disk on which a decision over six is durable, and some of its endings are not there."""
    return rolls(6, 1200)[1]


def test_an_opening_completes_the_decision_before_anything_else() -> None:
    left = incomplete()
    with fmq.open("data", read_only=True, disk=left) as reader:
        assert bodies(reader, "t") == [] and reader.mark("epoch") is None
        assert len(reader.undecided()) == 6
    with opened(left) as engine:
        assert inside(engine).ledger.endings_left == 0
        assert engine.stats().recovery.undecided == 0
        assert len(bodies(engine, "t")) == 6
        assert engine.mark("epoch") == Mark(1)
    kinds = [
        row["kind"] for row in fmq.table.read("data", "records", disk=left).read_all().to_pylist()
    ]
    after = kinds[kinds.index("JOINT") :]
    assert [kind for kind in after if kind != "TX_MESSAGE"][:7] == ["JOINT"] + ["COMMIT"] * 6


def test_readers_need_the_last_ending() -> None:
    """After a kill at each roll of decisions over two to six transactions, of different sizes."""
    lacking = set()
    for size in (400, 1200, 1900):
        for count in range(2, 7):
            for left in rolls(count, size):
                appends = [append[-1].kind for append in Walk(left.directory("data", make=False))]
                if Kind.JOINT in appends:
                    lacking.add(count - appends[::-1].index(Kind.JOINT))
                    assert shown_without_opening(left) == (0, 0, 0, 0)
    assert {1, 2, 3} <= lacking


def test_a_crash_while_the_decision_is_completed_is_completed_again() -> None:
    disk, moments = incomplete(), list[CrashDisk]()
    disk.watch(lambda _: moments.append(disk.after_kill()))
    opened(disk).close()
    disk.watch(None)
    assert len(moments) > 5
    for moment in moments:
        with opened(moment) as engine:
            assert len(bodies(engine, "t")) == 6
            assert engine.undecided() == []


def test_no_room_to_complete_refuses_the_opening_and_loses_nothing() -> None:
    left = incomplete()
    names = left.directory("data", make=False).names()
    for name in names:
        if name.endswith(".spare"):
            left.directory("data", make=False).remove(name)
    full = FaultDisk(left)
    full.fail("create", error=errno.ENOSPC, names="*.spare*", persistently=True)
    with pytest.raises(StorageFull):
        fmq.open("data", disk=full, background=False)
    with opened(left.after_kill()) as engine:
        assert len(bodies(engine, "t")) == 6


def test_a_table_that_is_read_in_batches_splits_no_decision() -> None:
    disk = CrashDisk()
    with opened(disk) as engine:
        engine.send_many("t", [b"x"] * 5)
        names = prepare(engine, *many(7), size=900)
        engine.send_many("t", [b"x"] * 5)
        engine.decide_many(names, "commit")
        engine.send_many("t", [b"x"] * 5)
        inside_it = span(engine, names)
    journal = see("data", disk=disk)
    for limit in (1, 3, 6, 12, 16):
        start = journal.first
        while start < journal.visible_to:
            end = batch_end(journal, start, journal.visible_to, BatchRoom(limit), disk=disk)
            assert end > start
            assert end not in inside_it, f"{limit=}"
            start = end
