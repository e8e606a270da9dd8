"""Marks: numbers under names, which a transaction sets with what else it does."""

from __future__ import annotations

import json
from typing import Any

import pytest

import fmq
from fmq import Mark
from fmq.basics.message import Decision
from fmq.errors import BadName, BadOption, MarkMoved, TooLarge, TooMany, WrongState
from fmq.testing import CrashDisk
from fmq.testing.inside import inside
from fmq.tx.commands import marks
from fmq.tx.ledger.carryover import check_carried
from tests.small import opened


def test_a_mark_is_set_with_the_messages_of_its_transaction() -> None:
    disk = CrashDisk()
    with opened(disk) as engine:
        with engine.transaction() as tx:
            tx.send("t", b"1")
            tx.mark("source", 7, b"page 3")
            assert engine.mark("source") is None
        assert engine.mark("source") == Mark(7, b"page 3")
    with opened(disk) as engine:
        assert engine.mark("source") == Mark(7, b"page 3")
        assert engine.mark("other") is None
    with fmq.open("data", read_only=True, disk=disk) as reader:
        assert reader.mark("source") == Mark(7, b"page 3")


def test_a_transaction_of_marks_alone_is_committed_and_rolled_back() -> None:
    with opened(CrashDisk()) as engine:
        with engine.transaction(tx_id="T") as tx:
            tx.mark("a", 1)
        assert engine.outcome("T").state == "committed"
        with pytest.raises(KeyError), engine.transaction() as tx:
            tx.mark("a", 2)
            raise KeyError
        assert engine.mark("a") == Mark(1)


@pytest.mark.parametrize("decision", ["commit", "rollback"])
@pytest.mark.parametrize("restarts", [False, True])
def test_a_prepared_mark_waits_for_the_decision(decision: Decision, restarts: bool) -> None:
    disk = CrashDisk()
    engine = opened(disk)
    tx = engine.transaction(tx_id="T")
    tx.mark("a", 1)
    tx.mark("b", 2)
    tx.prepare()
    if restarts:
        killed = disk.after_kill()
        engine.close()
        engine = opened(killed)
    assert engine.mark("a") is None
    engine.decide("T", decision)
    expected = Mark(1) if decision == "commit" else None
    assert engine.mark("a") == expected
    with engine.transaction() as later:
        later.mark("a", 3)
    assert engine.mark("a") == Mark(3)
    engine.close()


def test_the_last_change_of_a_mark_in_a_transaction_counts() -> None:
    with opened(CrashDisk()) as engine:
        with engine.transaction() as tx:
            tx.mark("a", 1)
            tx.mark("a", 2, b"two")
            tx.mark("b", 1)
            tx.unmark("b")
        assert engine.mark("a") == Mark(2, b"two")
        assert engine.mark("b") is None


def test_a_mark_that_moved_refuses_a_commit_and_changes_nothing() -> None:
    with opened(CrashDisk()) as engine:
        with engine.transaction() as tx:
            tx.mark("a", 5, expect=-1)
        late = engine.transaction()
        late.mark("a", 9, expect=4)
        late.send("t", b"late")
        with pytest.raises(MarkMoved, match="has the value 5, and 4 was expected") as caught:
            late.commit()
        assert (caught.value.name, caught.value.expected, caught.value.found) == ("a", 4, Mark(5))
        assert engine.queues() == []
        late.mark("a", 9, expect=5)  # it is open again, and what it expected first still counts
        with pytest.raises(MarkMoved):
            late.prepare()
        late.rollback()
        with engine.transaction() as tx:
            tx.unmark("a", expect=5)
        assert engine.mark("a") is None


def test_the_commit_of_a_planned_mark_is_what_the_next_one_expects() -> None:
    """Before the sync of the first: both are pending at once."""
    with fmq.open("data", disk=CrashDisk()) as engine:  # its thread writes when it comes to it
        for value in range(5):
            tx = engine.transaction()
            tx.mark("a", value, expect=value - 1)
            tx.commit(sync=False)
        engine.sync()
        assert engine.mark("a") == Mark(4)


def test_an_undecided_transaction_holds_its_marks() -> None:
    with opened(CrashDisk()) as engine:
        first = engine.transaction(tx_id="first")
        first.mark("a", 1, expect=-1)
        first.prepare()
        for expect in (None, -1):
            other = engine.transaction()
            other.mark("a", 2, expect=expect)
            with pytest.raises(MarkMoved, match="undecided transaction 'first'") as caught:
                other.commit()
            assert caught.value.undecided == "first"
        first.commit()
        other.commit() if expect is None else other.rollback()
        assert engine.mark("a") == Mark(1)


def test_marks_survive_checkpoint_retention_and_relocation() -> None:
    disk = CrashDisk()
    options: dict[str, Any] = {
        "retain_bytes": 8192,
        "relocate_bytes": 4096,
        "checkpoint_bytes": 4096,
    }
    with opened(disk, **options) as engine:
        with engine.transaction() as tx:
            tx.mark("old", 1, b"x" * 64)
        held = engine.transaction(tx_id="held")
        held.mark("later", 2)
        held.prepare()
        for _ in range(40):
            engine.send("t", bytes(1000))
        assert engine.stats().first_position > 0
    with opened(disk.after_kill(), **options) as engine:
        assert engine.mark("old") == Mark(1, b"x" * 64)
        assert engine.mark("later") is None
        engine.decide("held", "commit")
        assert engine.mark("later") == Mark(2)
    assert fmq.check("data", disk=disk).ok


def test_a_savepoint_rolls_marks_back() -> None:
    with opened(CrashDisk()) as engine:
        with engine.transaction() as tx:
            tx.mark("a", 1)
            back = tx.savepoint()
            tx.mark("a", 2)
            tx.mark("b", 2)
            back()
        assert (engine.mark("a"), engine.mark("b")) == (Mark(1), None)


def test_impossible_values_of_a_mark_are_refused() -> None:
    with opened(CrashDisk()) as engine:
        tx = engine.transaction()
        for value in (-1, 1 << 64):
            with pytest.raises(BadOption, match="value="):
                tx.mark("a", value)
        with pytest.raises(TypeError, match=r"value=1\.5"):
            tx.mark("a", 1.5)  # type: ignore[arg-type]
        with pytest.raises(TooLarge, match="the data of a mark"):
            tx.mark("a", 1, bytes(65))
        for name in ("", "x" * 256):
            with pytest.raises(BadName):
                tx.mark(name, 1)
        tx.commit()
        with pytest.raises(WrongState, match="mark cannot follow"):
            tx.mark("a", 1)
        assert engine.mark("a") is None


def test_a_directory_has_a_limit_of_marks() -> None:
    # Without a shadow, which would compare, and without chores, which would look meanwhile.
    with fmq.open("data", disk=CrashDisk(), background=False) as engine:
        inside(engine).ledger.marks.update(
            (f"mark {number}", Mark(number)) for number in range(marks.MARKS_MAX - 1)
        )
        with engine.transaction() as tx:
            tx.mark("mark 7", 8)
        tx = engine.transaction()
        tx.mark("one", 1)
        tx.mark("too many", 1)
        with pytest.raises(TooMany, match="marks"):
            tx.commit()
        inside(engine).ledger.marks.clear()


def test_a_transaction_of_many_marks_is_within_its_limit() -> None:
    with opened(CrashDisk()) as engine:
        tx = engine.transaction()
        with pytest.raises(TooLarge):
            for number in range(1000):
                tx.mark(f"mark {number}", number, bytes(64))
        tx.commit()
        assert engine.mark("mark 0") == Mark(0, bytes(64))


@pytest.mark.parametrize(
    "mark", [[1], ["1", ""], [-1, ""], [1 << 64, ""], [1, "0"], [1, "zz"], [1, 2], {}, None]
)
def test_carried_marks_of_another_shape_are_refused(mark: object) -> None:
    state = {"floor": 0, "last_us": 0, "topics": {}, "acks": [], "marks": {"a": mark}}
    with pytest.raises(ValueError):  # noqa: PT011
        check_carried(json.loads(json.dumps(state)))


def test_several_marks_are_read_at_once() -> None:
    disk = CrashDisk()
    with opened(disk) as engine:
        with engine.transaction() as tx:
            for name in ("a/1", "a/2", "b"):
                tx.mark(name, 7)
        assert engine.marks() == {}
        assert engine.marks("b", "c") == {"b": Mark(7)}
        assert set(engine.marks("b", prefix="a/")) == {"a/1", "a/2", "b"}
        assert set(engine.marks(prefix="")) == {"a/1", "a/2", "b"}
        with pytest.raises(TypeError):
            engine.marks(prefix=b"a")  # type: ignore[arg-type]
    with fmq.open("data", read_only=True, disk=disk) as reader:
        assert set(reader.marks(prefix="a/")) == {"a/1", "a/2"}
