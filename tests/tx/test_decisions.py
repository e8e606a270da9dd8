"""Deciding: the first durable decision wins, is found again, and reaches no other transaction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import fmq
from fmq import Engine, Options, Outcome
from fmq.basics.message import Decision
from fmq.errors import (
    AlreadyDecided,
    BadName,
    BadOption,
    TooLarge,
    UnknownTransaction,
)
from tests.small import CrashDisk, FakeClock, bodies, check, fill, opened

DECISIONS: tuple[Decision, ...] = ("commit", "rollback")
WORDS = {"commit": "committed", "rollback": "rolled back"}


def prepared(engine: Engine, tx_id: str = "T") -> str:
    """Prepare a transaction of two topics; its seal."""
    tx = engine.transaction(tx_id=tx_id, producer="checkout")
    tx.send("orders", b"1")
    tx.send_many("emails", [b"2", b"3"])
    tx.prepare()
    return tx.outcome().seal


def other(decision: Decision) -> Decision:
    return "rollback" if decision == "commit" else "commit"


def as_it_is(disk: CrashDisk, engine: Engine) -> Engine:
    return engine


def reopened(disk: CrashDisk, engine: Engine) -> Engine:
    engine.close()
    return opened(disk)


def killed(disk: CrashDisk, engine: Engine) -> Engine:
    left = disk.after_kill()
    engine.close()
    return opened(left)


def sealed(disk: CrashDisk, engine: Engine) -> Engine:
    for _ in range(3):
        fill(engine)
    return engine


def sealed_and_reopened(disk: CrashDisk, engine: Engine) -> Engine:
    return reopened(disk, sealed(disk, engine))


LATER = [as_it_is, reopened, killed, sealed, sealed_and_reopened]


@pytest.mark.parametrize("later", LATER)
@pytest.mark.parametrize("decision", DECISIONS)
def test_repeating_a_decision_returns_the_same_outcome(
    decision: Decision, later: Callable[[CrashDisk, Engine], Engine]
) -> None:
    """Repeat it at once, after a restart, after a kill, with a full segment, and after both."""
    disk = CrashDisk()
    engine = opened(disk)
    prepared(engine)
    first = engine.decide("T", decision, reason="ticket 4711", decided_by="anna")
    assert (first.reason, first.decided_by, first.state) == ("ticket 4711", "anna", WORDS[decision])
    with later(disk, engine) as engine:
        position = engine.stats().position
        assert engine.decide("T", decision, reason="another") == first
        assert engine.outcome("T") == first
        with pytest.raises(AlreadyDecided) as caught:
            engine.decide("T", other(decision))
        assert caught.value.outcome == first
        assert engine.stats().position == position
        for receipt in first.receipts:
            (message, *_) = engine.read(receipt.topic, offset=receipt.offset)
            assert (message.position, message.tx_id) == (receipt.position, "T")


@pytest.mark.parametrize("by", ["anna", None])
def test_already_decided_says_when_and_by_whom(by: str | None) -> None:
    """The time is written as ISO 8601, in UTC and to the second."""
    disk, clock = CrashDisk(), FakeClock()
    with opened(disk, clock) as engine:
        prepared(engine)
        outcome = engine.decide("T", "commit", decided_by=by)
        with pytest.raises(AlreadyDecided) as caught:
            engine.decide("T", "rollback")
    assert outcome.decided_at is not None
    seconds = outcome.decided_at.replace(microsecond=0, tzinfo=None).isoformat()
    who = " by anna;" if by else ";"
    assert f"'T' was committed at {seconds}Z{who} the first durable" in str(caught.value)


@pytest.mark.parametrize("later", LATER)
def test_a_one_phase_commit_has_an_outcome(
    later: Callable[[CrashDisk, Engine], Engine],
) -> None:
    disk = CrashDisk()
    engine = opened(disk)
    tx = engine.transaction(tx_id="T")
    tx.send("orders", b"1")
    receipts = tx.commit()
    with later(disk, engine) as engine:
        outcome = engine.outcome("T")
        assert (outcome.state, list(outcome.receipts)) == ("committed", receipts)
        assert list(engine.decide("T", "commit").receipts) == receipts


def test_an_outcome_has_all_facts_of_its_transaction() -> None:
    clock = FakeClock()
    with opened(CrashDisk(), clock) as engine:
        seal = prepared(engine)
        before = engine.outcome("T")
        assert (before.state, before.decided_at, before.receipts) == ("undecided", None, ())
        clock.advance(5)
        after = engine.decide("T", "commit", reason="why", decided_by="who")
        assert after == Outcome(
            "T",
            "committed",
            "checkout",
            before.prepared_at,
            3,
            3,
            seal,
            after.decided_at,
            "who",
            "why",
            after.position,
            after.receipts,
        )
        assert after.decided_at is not None
        assert (after.decided_at - after.prepared_at).total_seconds() == 5
        assert after.decided_at.utcoffset() is not None


@pytest.mark.parametrize("decided", [False, True])
@pytest.mark.parametrize("decision", DECISIONS)
def test_a_decision_with_a_wrong_seal_is_refused(decision: Decision, decided: bool) -> None:
    """This holds for an undecided and for a decided transaction with the id."""
    with opened(CrashDisk()) as engine:
        seal = prepared(engine)
        if decided:
            engine.decide("T", decision, seal=seal)
        position = engine.stats().position
        with pytest.raises(UnknownTransaction, match="for another one"):
            engine.decide("T", decision, seal="0" * 32)
        assert engine.stats().position == position
        assert engine.decide("T", decision, seal=seal).state == WORDS[decision]


@pytest.mark.parametrize("decision", DECISIONS)
def test_an_unknown_transaction_cannot_be_decided(decision: Decision) -> None:
    with opened(CrashDisk()) as engine, pytest.raises(UnknownTransaction, match="never prepared"):
        engine.decide("T", decision)


WRONG: list[tuple[dict[str, Any], type[Exception]]] = [
    ({"decision": "abort"}, BadOption),
    ({"decision": "commit", "reason": "r" * 1025}, TooLarge),
    ({"decision": "commit", "decided_by": "\n"}, BadName),
]


@pytest.mark.parametrize(("call", "error"), WRONG)
def test_a_decision_with_a_wrong_argument_changes_nothing(
    call: dict[str, Any], error: type[Exception]
) -> None:
    with opened(CrashDisk()) as engine:
        prepared(engine)
        position = engine.stats().position
        with pytest.raises(error):
            engine.decide("T", **call)
        assert (engine.stats().position, engine.outcome("T").state) == (position, "undecided")


def test_undecided_lists_the_oldest_first_also_after_a_restart() -> None:
    disk, clock = CrashDisk(), FakeClock()
    with opened(disk, clock) as engine:
        for tx_id in ("A", "B", "C"):
            prepared(engine, tx_id)
            clock.advance(1)
        engine.decide("B", "rollback")
        before = engine.undecided()
    with opened(disk, clock) as engine:
        after = engine.undecided()
        assert after == before
        assert [each.tx_id for each in after] == ["A", "C"]
        assert after[0].prepared_at < after[1].prepared_at
        for each in after:
            engine.decide(each.tx_id, "commit", seal=each.seal)
        assert bodies(engine, "orders") == [b"1", b"1"]
    check(disk)


# --- the window -----------------------------------------------------------------------------------


def test_an_outcome_is_known_only_within_the_window() -> None:
    clock = FakeClock()
    with opened(CrashDisk(), clock, outcome_window_seconds=60) as engine:
        prepared(engine)
        engine.decide("T", "commit")
        clock.advance(60)
        assert engine.outcome("T").state == "committed"
        clock.advance(1)
        for call in (
            lambda: engine.outcome("T"),
            lambda: engine.decide("T", "commit"),
            lambda: engine.decide("T", "rollback"),
        ):
            with pytest.raises(UnknownTransaction, match="the last 60 seconds"):
                call()


def test_an_id_reused_after_the_window_has_its_newest_outcome() -> None:
    clock, disk = FakeClock(), CrashDisk()
    with opened(disk, clock, outcome_window_seconds=60) as engine:
        prepared(engine)
        engine.decide("T", "rollback")
        clock.advance(61)
        prepared(engine)
        assert engine.outcome("T").state == "undecided"
        engine.decide("T", "commit")
    with opened(disk, clock, outcome_window_seconds=60) as engine:
        assert engine.outcome("T").state == "committed"
        assert bodies(engine, "orders") == [b"1"]
    check(disk)


def test_outcomes_in_many_sealed_segments_are_found() -> None:
    """This includes two ids with the same checksum in an index."""
    disk = CrashDisk()
    ids = ["plumless", "buckeroo"]  # their CRC-32 is the same
    ids += [f"tx-{number}" for number in range(60)]
    with opened(disk) as engine:
        for number, tx_id in enumerate(ids):
            prepared(engine, tx_id)
            engine.decide(tx_id, DECISIONS[number % 2])
        assert engine.stats().segments > 5
    with opened(disk) as engine:
        for number, tx_id in enumerate(ids):
            assert engine.outcome(tx_id).state == WORDS[DECISIONS[number % 2]]


def lazily_opened() -> Engine:
    """One that syncs when it is asked to."""
    options = Options(sync="interval", sync_interval_seconds=10_000.0, checker_threads=0)
    return fmq.open("data", options, disk=CrashDisk(), clock=FakeClock())


def test_a_planned_decision_is_not_shown_as_undecided() -> None:
    """With sync="interval" it is not durable yet and time does not pass, so the caller waits."""
    with lazily_opened() as engine:
        prepared(engine, "asked")
        engine.decide("asked", "commit")
        assert engine.outcome("asked").state == "committed"
        prepared(engine, "listed")
        engine.decide("listed", "rollback")
        assert engine.undecided() == []
        sent = engine.send_in_transaction([("t", b"1")], lambda tx: "commit")
        assert sent.state == "committed"


def test_a_decision_of_a_checker_is_in_the_report_of_settle() -> None:
    with lazily_opened() as engine:
        prepared(engine)
        engine.checker("checkout")(lambda question: "commit")
        assert engine.settle().committed == ("T",)
