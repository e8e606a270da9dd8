"""engine.decide_many: one decision over many prepared transactions, shown at one instant."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

import fmq
import fmq.table
from fmq import JointDecision, Mark
from fmq.errors import (
    AlreadyDecided,
    BadOption,
    FmqError,
    MarkMoved,
    TooLarge,
    UnknownTransaction,
)
from fmq.testing import CrashDisk
from tests.small import bodies, opened, segments


def prepare(engine: Any, *names: str, size: int = 10, also: str = "") -> list[str]:
    """Prepare transactions with a message in `t` each, and perhaps one in the topic `also`."""
    for name in names:
        tx = engine.transaction(tx_id=name, producer="lake")
        tx.send("t", name.encode().ljust(size))
        if also:
            tx.send(also, name.encode())
        tx.prepare()
    return [*names]


def many(count: int) -> list[str]:
    return [f"part {number}" for number in range(count)]


def joint_of(engine: Any, name: str) -> JointDecision:
    found = engine.outcome(name).joint
    assert isinstance(found, JointDecision)
    return found


def span(engine: Any, names: list[str]) -> range:
    """Return the positions at which a part of the journal may not end."""
    return range(joint_of(engine, names[0]).number + 1, engine.outcome(names[-1]).position + 1)


def states(engine: Any, names: Iterable[str]) -> set[str]:
    return {engine.outcome(name).state for name in names}


# --- what it does -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("decision", "state"), [("commit", "committed"), ("rollback", "rolled back")]
)
@pytest.mark.parametrize("count", [1, 2, 30])
def test_all_are_decided_and_the_mark_moves(count: int, decision: Any, state: str) -> None:
    disk, names = CrashDisk(), many(count)
    with opened(disk) as engine:
        prepare(engine, *names)
        engine.decide_many(names, decision, mark=("epoch", 7, -1))
        assert states(engine, names) == {state}
        assert len(bodies(engine, "t")) == (count if decision == "commit" else 0)
        assert engine.mark("epoch") == Mark(7)
        assert engine.undecided() == []
    with opened(disk) as engine:
        assert states(engine, names) == {state}
        assert engine.mark("epoch") == Mark(7)


def test_each_outcome_knows_the_whole_decision() -> None:
    disk = CrashDisk()
    with opened(disk) as engine:
        names = prepare(engine, *many(3))
        engine.decide_many(names[:2], "commit", mark=("epoch", 7, None))
        engine.decide(names[2], "commit")
        first = joint_of(engine, names[0])
        assert first == joint_of(engine, names[1]) == JointDecision(first.number, 2, "epoch", 7)
        assert engine.outcome(names[2]).joint is None
        prepare(engine, "x", "y")
        engine.decide_many(["x", "y"], "rollback")
        joint = joint_of(engine, "x")
        assert joint == JointDecision(joint.number, 2, None, None)
        assert joint.number > first.number
    with fmq.open("data", read_only=True, disk=disk) as reader:
        assert reader.outcome(names[0]).joint == first


def test_ids_are_taken_once_and_from_any_iterable() -> None:
    with opened(CrashDisk()) as engine:
        names = prepare(engine, "a", "b")
        engine.decide_many(iter([*names, *names]), "commit")
        assert joint_of(engine, "a") == joint_of(engine, "b")
        assert joint_of(engine, "a").transactions == 2


def test_acks_marks_timers_and_ids_of_the_transactions_take_effect() -> None:
    with opened(CrashDisk()) as engine:
        engine.send_many("in", [b"1", b"2"])
        with engine.consumer("in", group="g") as consumer:
            for number, delivery in enumerate(consumer.poll(limit=2)):
                tx = engine.transaction(tx_id=f"{number}")
                tx.ack(delivery)
                tx.mark(f"m{number}", number)
                tx.send("out", b"x", message_id=f"{number}")
                tx.send("out", b"later", delay=60)
                tx.prepare()
        engine.decide_many(["0", "1"], "commit", mark=("all", 1, None))
        assert engine.unread("g", "in") == []
        assert engine.marks(prefix="") == {"m0": Mark(0), "m1": Mark(1), "all": Mark(1)}
        assert len(engine.delayed()) == 2
        assert engine.send("out", b"again", message_id="1").offset == 1


def test_a_decision_goes_over_as_many_segments_as_it_needs() -> None:
    disk = CrashDisk()
    with opened(disk) as engine:
        names = prepare(engine, *many(12), size=1500)
        before = len(segments(disk))
        engine.decide_many(names, "commit")
        assert len(segments(disk)) >= before + 4
        assert [body.strip().decode() for body in bodies(engine, "t")] == names


# --- again, and against others --------------------------------------------------------------------


@pytest.mark.parametrize("restarts", [False, True])
def test_the_same_call_again_changes_nothing(restarts: bool) -> None:
    disk = CrashDisk()
    engine = opened(disk)
    names = prepare(engine, *many(3))
    for attempt in range(3):
        engine.decide_many(names, "commit", mark=("epoch", 7, -1))
        if attempt == 0:
            with engine.transaction() as tx:
                tx.mark("other", 1)
        if restarts:
            engine.close()
            engine = opened(disk)
    position = engine.stats().position
    engine.decide_many(names, "commit", mark=("epoch", 7, -1))
    engine.decide_many(names, "commit")
    assert engine.stats().position == position
    with engine.transaction() as tx:
        tx.mark("epoch", 8, expect=7)
    engine.decide_many(names, "commit", mark=("epoch", 7, -1))
    assert engine.mark("epoch") == Mark(8), "a late repeat does not set the mark back"
    engine.close()


def refused(call: Callable[[], Any], error: type[FmqError], *words: str) -> None:
    with pytest.raises(error) as caught:
        call()
    for word in words:
        assert word in str(caught.value)


def test_what_contradicts_is_refused_whole_and_named() -> None:
    with opened(CrashDisk()) as engine:
        prepare(engine, "a", "b", "c", "d")
        engine.decide("a", "rollback")
        engine.decide("b", "commit")
        position = engine.stats().position
        decide = engine.decide_many
        refused(lambda: decide(["c", "a"], "commit"), AlreadyDecided, "'a'", "rolled back")
        refused(lambda: decide(["c", "b"], "rollback"), AlreadyDecided, "'b'", "committed")
        refused(lambda: decide(["c", "e"], "commit"), UnknownTransaction, "'e'")
        with pytest.raises(AlreadyDecided, match="'b'"):  # it was shown without the mark
            decide(["c", "b"], "commit", mark=("m", 1, None))
        with pytest.raises(AlreadyDecided, match="'b'"):
            decide(["b"], "commit", mark=("m", 1, None))
        assert engine.stats().position == position
        assert [each.tx_id for each in engine.undecided()] == ["c", "d"]
        decide(["c", "b"], "commit")  # without a mark, what agrees is left out
        assert joint_of(engine, "c").transactions == 1
        assert engine.outcome("b").joint is None


def test_many_that_contradict_are_counted() -> None:
    with opened(CrashDisk()) as engine:
        names = prepare(engine, *many(14))
        engine.decide_many(names, "commit")
        refused(
            lambda: engine.decide_many(names, "rollback"), AlreadyDecided, "'part 9' and 4 more"
        )
        unknown = [f"no {number}" for number in range(12)]
        refused(
            lambda: engine.decide_many(unknown, "commit"), UnknownTransaction, "'no 9' and 2 more"
        )


def test_a_single_decision_agrees_with_a_joint_one_or_is_refused() -> None:
    with opened(CrashDisk()) as engine:
        handle = engine.transaction(tx_id="a")
        handle.send("t", b"x")
        handle.prepare()
        engine.decide_many([*prepare(engine, "b"), "a"], "commit")
        assert engine.decide("a", "commit").joint == engine.outcome("b").joint
        refused(lambda: engine.decide("a", "rollback"), AlreadyDecided, "committed")
        refused(handle.rollback, AlreadyDecided)
        assert [receipt.count for receipt in handle.commit()] == [1]
        assert len(bodies(engine, "t")) == 2


def test_a_mark_that_has_moved_refuses_the_decision() -> None:
    with opened(CrashDisk()) as engine:
        names = prepare(engine, *many(3))
        with engine.transaction() as tx:
            tx.mark("epoch", 3)
        position = engine.stats().position
        decide = engine.decide_many
        for expect in (-1, 2):
            move = ("epoch", 4, expect)
            refused(lambda move=move: decide(names, "commit", mark=move), MarkMoved)  # type: ignore[misc]
        holder = engine.transaction(tx_id="holder")
        holder.mark("epoch", 9)
        holder.prepare()
        before = engine.stats().position
        refused(lambda: decide(names, "commit", mark=("epoch", 4, 3)), MarkMoved, "holder")
        assert engine.stats().position == before > position
        holder.rollback()
        decide(names, "commit", mark=("epoch", 4, 3))
        assert engine.mark("epoch") == Mark(4)


def test_one_that_sets_the_same_mark_itself_refuses_the_decision() -> None:
    with opened(CrashDisk()) as engine:
        tx = engine.transaction(tx_id="a")
        tx.mark("epoch", 1)
        tx.prepare()
        decide = engine.decide_many
        refused(lambda: decide(["a"], "commit", mark=("epoch", 2, None)), MarkMoved, "'a'")


def test_a_decision_needs_a_transaction() -> None:
    with opened(CrashDisk()) as engine:
        refused(lambda: engine.decide_many([], "commit", mark=("m", 1, -1)), BadOption, "empty")


def test_more_transactions_than_a_segment_has_room_for_are_refused() -> None:
    """Each takes 8 bytes of one record; with segments of 16 MiB that is two million."""
    with opened(CrashDisk()) as engine:
        names = prepare(engine, *many(520), size=1)
        position = engine.stats().position
        refused(lambda: engine.decide_many(names, "commit"), TooLarge, "520 transactions")
        assert engine.stats().position == position
        engine.decide_many(names[:260], "commit")
        engine.decide_many(names[260:], "commit")


# --- in parts ----------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 2, 5, 8, 30])
def test_the_tail_splits_no_decision(limit: int) -> None:
    disk = CrashDisk()
    with opened(disk) as engine:
        engine.send_many("t", [b"x"] * 3)
        names = prepare(engine, *many(7), size=900, also="u")
        engine.decide_many(names, "commit")
        engine.send_many("t", [b"x"] * 3)
        inside_it = span(engine, names)
        for topics in (None, ["t"], ["u"]):
            position, found = 0, 0
            while (part := engine.tail(position, topics=topics, limit=limit)).messages:
                assert part.position not in inside_it
                position, found = part.position, found + len(part.messages)
            assert found == {None: 20, "t": 13, "u": 7}[topics[0] if topics else None]
