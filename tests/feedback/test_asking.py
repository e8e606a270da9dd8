"""Asking: which transaction a producer is asked about, when, and for how long the lease lasts."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

import fmq
from fmq import CheckLoop, Engine
from fmq.errors import BadName, BadOption, UnknownTransaction
from fmq.testing import CrashDisk, FakeClock
from fmq.testing.inside import has_lock, inside
from tests.feedback.asking import LAZY, ask, asked, asked_one, ids, prepared, with_threads
from tests.interrupts import in_thread
from tests.small import fill, opened


def opened_with(clock: FakeClock, **options: Any) -> Engine:
    return opened(CrashDisk(), clock, **options)


# --- when -----------------------------------------------------------------------------------------


def test_no_question_is_due_before_check_after(clock: FakeClock) -> None:
    """The option counts from prepare, for transactions without a time of their own."""
    with opened_with(clock, check_after_seconds=40.0) as engine:
        prepared(engine, "T", check_after=None)
        clock.advance(39.9)
        assert asked(engine) == []
        clock.advance(0.1)
        assert asked(engine) == ["T"]


def test_check_after_is_sixty_seconds_by_default(clock: FakeClock) -> None:
    with opened_with(clock) as engine:
        prepared(engine, "T", check_after=None)
        clock.advance(59.9)
        assert asked(engine) == []
        clock.advance(0.1)
        assert asked(engine) == ["T"]


def test_a_transaction_can_have_its_own_check_after(clock: FakeClock) -> None:
    """It can be shorter or longer than the option, and 0 means at once."""
    with opened_with(clock, check_after_seconds=10.0) as engine:
        prepared(engine, "later", check_after=20.0)
        prepared(engine, "soon", check_after=2.5)
        prepared(engine, "now", check_after=0)
        assert asked(engine) == ["now"]
        clock.advance(2.5)
        assert asked(engine) == ["soon"]
        clock.advance(17.5)
        assert asked(engine) == ["later"]


def test_a_negative_check_after_is_refused(clock: FakeClock) -> None:
    with opened_with(clock) as engine, pytest.raises(BadOption, match="check_after"):
        engine.transaction(check_after=-1.0)


def test_questions_are_due_at_once_after_opening(clock: FakeClock) -> None:
    """The process that prepared has ended, so its own time does not count."""
    disk = CrashDisk()
    engine = opened(disk, clock)
    prepared(engine, "T1", check_after=1000.0)
    prepared(engine, "T2", check_after=None)
    with opened(disk.after_kill(), clock) as again:
        assert asked(again) == ["T1", "T2"]
    engine.close()
    with opened(disk, clock) as again:
        assert asked(again) == ["T1", "T2"]


def test_a_new_producer_is_asked_before_it_has_sent_anything(clock: FakeClock) -> None:
    disk = CrashDisk()
    with opened(disk, clock) as engine:
        prepared(engine, "T")
    with opened(disk, clock) as again:
        question = asked_one(again)
        assert again.feedback.answer(question, "commit") is not None


def test_the_question_due_for_longest_comes_first(clock: FakeClock) -> None:
    with opened_with(clock) as engine:
        prepared(engine, "third", check_after=3.0)
        prepared(engine, "first", check_after=1.0)
        prepared(engine, "second", check_after=2.0)
        clock.advance(5)
        assert asked(engine, limit=2) == ["first", "second"]
        assert asked(engine) == ["third"]


def test_a_call_waits_only_until_a_question_is_due(clock: FakeClock) -> None:
    """With no question due it waits for its whole time."""
    with opened_with(clock) as engine:
        prepared(engine, "T", check_after=3.0)
        assert asked(engine, wait=2.0) == []
        assert clock.monotonic() == pytest.approx(2.0)
        assert asked(engine, wait=60.0) == ["T"]
        assert clock.monotonic() == pytest.approx(3.0)


# --- what -----------------------------------------------------------------------------------------


def test_a_question_describes_its_transaction(clock: FakeClock) -> None:
    with opened_with(clock, check_lease_seconds=12.0) as engine:
        prepared(engine, "T", topics=("orders", "emails", "orders"))
        (undecided,) = engine.undecided()
        question = asked_one(engine)
    for name in ("tx_id", "producer", "prepared_at", "topics", "bytes", "seal"):
        assert getattr(question, name) == getattr(undecided, name), name
    assert (question.topics, question.message_count) == (("orders", "emails"), 3)
    assert (question.lease_seconds, question.answers) == (12.0, 0)


def test_a_question_shows_the_messages_of_its_transaction(clock: FakeClock) -> None:
    with opened_with(clock) as engine:
        tx = engine.transaction(tx_id="T", producer="p", check_after=0.0)
        tx.send("orders", b"1", key="k", tag="new", headers={"a": "b"})
        tx.send_many("emails", [b"2", b"3"])
        tx.prepare()
        question = asked_one(engine)
        order, *emails = question.messages()
        assert (order.topic, order.offset, order.tx_id) == ("orders", None, "T")
        assert order[:4] == (b"1", "k", "new", {"a": "b"})
        assert [each.body for each in emails] == [b"2", b"3"]
        tx.commit()
        with pytest.raises(UnknownTransaction):
            question.messages()


def test_only_undecided_transactions_are_asked_about(clock: FakeClock) -> None:
    """Open transactions are not, nor are those that any caller committed or rolled back."""
    with opened_with(clock) as engine:
        engine.transaction(tx_id="open", producer="p").send("orders", b"1")
        prepared(engine, "committed").commit()
        prepared(engine, "rolled back").rollback()
        prepared(engine, "by hand")
        engine.decide("by hand", "commit")
        with engine.transaction(tx_id="one phase", producer="p") as tx:
            tx.send("orders", b"1")
        prepared(engine, "T")
        assert asked(engine) == ["T"]
        clock.advance(3600)
        assert asked(engine) == ["T"]


def test_a_transaction_is_not_asked_about_while_its_decision_is_on_its_way(
    clock: FakeClock,
) -> None:
    """With an interval between syncs a decision is not durable at once."""
    with with_threads(clock=clock, **LAZY) as engine:
        prepared(engine, "T1")
        prepared(engine, "T2")
        engine.decide("T1", "commit")
        assert asked(engine) == ["T2"]
        clock.advance(100)
        assert asked(engine) == ["T2"]
        assert [each.tx_id for each in engine.undecided()] == ["T2"]  # and waits for the sync
        clock.advance(100)
        assert asked(engine) == ["T2"]


@pytest.mark.parametrize("topics", [["orders"], "orders", ("nothing", "orders")])
def test_questions_can_be_limited_to_some_topics(clock: FakeClock, topics: Any) -> None:
    with opened_with(clock) as engine:
        prepared(engine, "T1", topics=("emails",))
        prepared(engine, "T2", topics=("emails", "orders"))
        prepared(engine, "T3", topics=())
        assert asked(engine, topics=topics) == ["T2"]
        assert asked(engine, topics=topics) == []
        assert asked(engine, topics=[]) == []
        assert asked(engine) == ["T1", "T3"]


def test_a_question_under_several_keys_is_asked_once(clock: FakeClock) -> None:
    with opened_with(clock) as engine:
        prepared(engine, "T1", topics=("emails", "orders"))
        prepared(engine, "T2", "q", topics=("emails", "orders"))
        assert asked(engine, ["p", "q", "p"], ["orders", "emails", "orders"]) == ["T1", "T2"]
        clock.advance(100)
        assert asked(engine, iter(["q", "p"]), iter(["orders", "emails"])) == ["T1", "T2"]


def test_a_producer_gets_no_question_of_another(clock: FakeClock) -> None:
    with opened_with(clock) as engine:
        prepared(engine, "T1", "p")
        prepared(engine, "T2", "q")
        prepared(engine, "T3", None)
        assert asked(engine, "unknown") == asked(engine, []) == []
        assert asked(engine, "q") == ["T2"]
        assert asked(engine, ["p", "q"]) == ["T1"]
        question = asked_one(engine, "")
        assert (question.tx_id, question.producer) == ("T3", "")
        assert engine.feedback.answer(question, "commit") is not None


def test_a_producer_with_many_questions_delays_no_other(clock: FakeClock) -> None:
    """Its first questions, due again, come after those of the other. In the end all are asked."""
    with opened_with(clock, check_lease_seconds=1.0) as engine:
        for number in range(20):
            prepared(engine, f"p{number}")
        prepared(engine, "q", "q")
        seen: list[str] = []
        for _ in range(25):
            seen += asked(engine, ["p", "q"], limit=1)
            clock.advance(0.1)
        assert seen[:21] == [*(f"p{number}" for number in range(20)), "q"]


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_below_one_is_refused(clock: FakeClock, limit: int) -> None:
    with opened_with(clock) as engine, pytest.raises(BadOption, match="limit"):
        ask(engine, limit=limit)


def test_a_bad_name_of_a_producer_is_refused(clock: FakeClock) -> None:
    with opened_with(clock) as engine, pytest.raises(BadName):
        ask(engine, "p\n")


# --- leases ---------------------------------------------------------------------------------------


def test_a_question_belongs_to_one_caller_until_its_lease_ends(clock: FakeClock) -> None:
    """Then it is asked again, with another token."""
    with opened_with(clock, check_lease_seconds=9.0) as engine:
        prepared(engine, "T")
        first = asked_one(engine)
        clock.advance(8.9)
        assert asked(engine) == []
        clock.advance(0.1)
        second = asked_one(engine)
        assert (first.tx_id, first.seal) == (second.tx_id, second.seal)
        assert first.token != second.token
        assert second.answers == 0, "a lease that ends is no answer"


def test_each_question_has_another_token(clock: FakeClock) -> None:
    with opened_with(clock) as engine:
        for number in range(50):
            prepared(engine, f"T{number}")
        assert len({question.token for question in ask(engine, limit=100)}) == 50


def test_questions_beyond_the_limit_are_left_to_the_next_call(clock: FakeClock) -> None:
    with opened_with(clock) as engine:
        for number in range(70):
            prepared(engine, f"T{number}")
        first, second, third, none = (ask(engine) for _ in range(4))
        assert [len(each) for each in (first, second, third, none)] == [32, 32, 6, 0]
        assert ids([*first, *second, *third]) == [f"T{number}" for number in range(70)]


# --- relocation -----------------------------------------------------------------------------------


def relocated(engine: Engine, position: int) -> None:
    while engine.undecided()[0].position == position:
        fill(engine)


def test_relocation_neither_asks_twice_nor_loses_a_question(clock: FakeClock) -> None:
    """A relocation writes the transaction again. Lease, answers and due time stay as they are."""
    disk = CrashDisk()
    with opened(disk, clock, relocate_bytes=5000, check_lease_seconds=9.0) as engine:
        prepared(engine, "T", topics=("orders", "emails"))
        question = asked_one(engine)
        relocated(engine, engine.undecided()[0].position)
        assert asked(engine) == []
        assert engine.feedback.answer(question, "unknown") is None
        relocated(engine, engine.undecided()[0].position)
        assert asked(engine) == []
        (undecided,) = engine.undecided()
        assert undecided.answers == 1
        clock.advance(60)
        assert asked(engine, topics=["emails"]) == ["T"]
        clock.advance(9)
        question = asked_one(engine)
        relocated(engine, engine.undecided()[0].position)
        assert engine.feedback.answer(question, "commit") is not None
        clock.advance(3600)
        assert asked(engine) == []
    with opened(disk, clock) as engine:
        assert asked(engine) == []


def test_a_transaction_is_asked_about_while_it_is_relocated(clock: FakeClock) -> None:
    """A call waits only for a decision that is on its way."""
    disk = CrashDisk()
    met: list[list[str]] = []
    with opened(disk, clock, relocate_bytes=5000) as engine:
        prepared(engine, "T")
        (entry,) = inside(engine).ledger.undecided.values()
        before = entry.prepare
        clock.advance(1000)

        def ask(line: str) -> None:
            if entry.prepare is not before and not met:
                assert not has_lock(engine), "the relocation is written under the lock"
                met.append(in_thread(partial(asked, engine), line))

        disk.watch(ask)
        relocated(engine, engine.undecided()[0].position)
        disk.watch(None)
    assert met == [["T"]]


def test_a_relocated_transaction_is_asked_about_after_opening(clock: FakeClock) -> None:
    disk = CrashDisk()
    engine = opened(disk, clock, relocate_bytes=5000)
    prepared(engine, "T1")
    for _ in range(3):
        fill(engine)
    prepared(engine, "T2")
    relocated(engine, engine.undecided()[0].position)
    assert [tx.tx_id for tx in engine.undecided()] == ["T1", "T2"], "the oldest first"
    for again in (opened(disk.after_kill(), clock), fmq.open("data", read_only=True, disk=disk)):
        assert [tx.tx_id for tx in again.undecided()] == ["T1", "T2"]
        if isinstance(again, Engine):
            assert sorted(asked(again)) == ["T1", "T2"]
        again.close()
    engine.close()


# --- the loop -------------------------------------------------------------------------------------


def test_a_loop_asks_for_its_own_producers_and_topics(clock: FakeClock) -> None:
    with opened_with(clock) as engine:
        prepared(engine, "T1", topics=("emails",))
        prepared(engine, "T2", topics=("orders",))
        prepared(engine, "T3", "q", topics=("orders",))
        loop = CheckLoop(
            engine.feedback, {"p": lambda _: "commit"}, topics="orders", wait=0.0, clock=clock
        )
        ((question, answer),) = loop.once()
        assert (question.tx_id, answer) == ("T2", "commit")
        assert loop.once() == []
        assert [tx.tx_id for tx in engine.undecided()] == ["T1", "T3"]
