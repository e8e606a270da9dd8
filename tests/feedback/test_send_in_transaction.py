"""send_in_transaction: prepare, call the program's own part, decide by its answer or exception."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from fmq import Engine, Message, RollBack, Transaction
from fmq.errors import AlreadyDecided, BadName, BadOption, EngineFailed, TooLarge, TooMany
from fmq.testing import CrashDisk, FakeClock, FaultDisk
from tests.feedback.asking import asked, asked_one, prepared
from tests.small import bodies, opened

MESSAGES: list[tuple[str, Any]] = [
    ("orders", b"order 1"),
    ("emails", Message(b"receipt 1", key="c-7")),
]


@pytest.fixture
def engine(clock: FakeClock) -> Iterator[Engine]:
    with opened(CrashDisk(), clock, message_bytes_max=2000) as engine:
        yield engine


def sent(engine: Engine, local: Any, tx_id: str | None = "T", **more: Any) -> Any:
    return engine.send_in_transaction(MESSAGES, local, producer="p", tx_id=tx_id, **more)


def shown(engine: Engine) -> list[Any]:
    return [bodies(engine, topic) for topic in ("orders", "emails")]


def test_local_is_called_after_the_messages_are_prepared(engine: Engine) -> None:
    """They are sealed, durable and invisible, so local may commit its database."""
    seen: list[Any] = []

    def local(tx: Transaction) -> str:
        (undecided,) = engine.undecided()
        seen.append((undecided.tx_id, undecided.producer, undecided.messages, shown(engine)))
        assert tx.tx_id == undecided.tx_id
        return "commit"

    outcome = sent(engine, local)
    assert seen == [("T", "p", 2, [[], []])]
    assert (outcome.state, outcome.producer, len(outcome.receipts)) == ("committed", "p", 2)
    assert outcome == engine.outcome("T")
    assert shown(engine) == [[b"order 1"], [b"receipt 1"]]
    assert engine.read("emails")[0].key == "c-7"


def test_an_id_is_made_by_default(engine: Engine) -> None:
    outcome = sent(engine, lambda _: "commit", tx_id=None)
    assert engine.outcome(outcome.tx_id).state == "committed"


def test_rollback_drops_the_messages(engine: Engine) -> None:
    assert sent(engine, lambda _: "rollback").state == "rolled back"
    assert shown(engine) == [[], []]
    assert engine.undecided() == []


def test_a_roll_back_that_local_raises_rolls_back(engine: Engine) -> None:
    """The caller gets the exception."""

    def local(tx: Transaction) -> Any:
        raise RollBack("no such customer")

    with pytest.raises(RollBack, match="no such customer"):
        sent(engine, local)
    assert engine.outcome("T").state == "rolled back"


@pytest.mark.parametrize("answer", ["unknown", None])
def test_unknown_makes_the_question_due_at_once(engine: Engine, answer: str | None) -> None:
    """None means it, too."""
    outcome = sent(engine, lambda _: answer, check_after=1000.0)
    assert outcome.state == "undecided"
    assert engine.feedback.answer(asked_one(engine), "commit") is not None


@pytest.mark.parametrize("error", [ZeroDivisionError("oh"), KeyboardInterrupt(), SystemExit(1)])
def test_an_exception_of_local_leaves_the_transaction_undecided(engine: Engine, error: Any) -> None:
    """A note says so, and its checker is asked at once."""

    def local(tx: Transaction) -> Any:
        raise error

    with pytest.raises(type(error)) as caught:
        sent(engine, local, check_after=1000.0)
    assert caught.value is error
    assert "'T' was prepared before this exception and stays undecided" in error.__notes__[0]
    assert asked(engine) == ["T"]


@pytest.mark.parametrize("nonsense", [True, "COMMIT", ""])
def test_a_wrong_kind_of_answer_leaves_the_transaction_undecided(
    engine: Engine, nonsense: Any
) -> None:
    with pytest.raises(BadOption, match="must be one of commit, rollback, unknown"):
        sent(engine, lambda _: nonsense, check_after=1000.0)
    assert asked(engine) == ["T"]


# --- refused --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("messages", "error"),
    [
        ([("orders", b"1"), ("orders", b"x" * 3000)], TooLarge),
        ([("orders", b"1"), ("\n", b"1")], BadName),
        ([("orders", b"1"), ("orders", "no bytes")], TypeError),
        ([("orders", b"1"), 17], TypeError),
        (iter([("orders", b"1")][:0]), None),
    ],
    ids=["too large", "no topic", "no bytes", "no pair", "nothing"],
)
def test_a_refused_message_leaves_nothing(
    engine: Engine, messages: Any, error: type[Exception] | None
) -> None:
    """Nothing is written, local is not called, and the id is free."""
    position = engine.stats().position
    called: list[Any] = []

    def local(tx: Transaction) -> Any:
        called.append(tx)

    if error is not None:
        # What was caught keeps the transaction alive: its id is free all the same.
        with pytest.raises(error) as caught:
            engine.send_in_transaction(messages, local, tx_id="T", producer="p")
        assert caught.tb is not None
        assert engine.stats().position == position
        assert called == []
        assert engine.undecided() == []
    assert sent(engine, lambda _: "commit").state == "committed"


def test_a_refused_prepare_frees_the_id(clock: FakeClock) -> None:
    with opened(CrashDisk(), clock, transactions_max=1) as engine:
        prepared(engine, "first")
        with pytest.raises(TooMany):
            sent(engine, lambda _: "commit")
        engine.decide("first", "rollback")
        assert sent(engine, lambda _: "commit").state == "committed"


def test_a_generator_that_raises_leaves_nothing(engine: Engine) -> None:
    def messages() -> Iterator[Any]:
        yield "orders", b"1"
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        engine.send_in_transaction(messages(), lambda _: "commit", tx_id="T")
    assert sent(engine, lambda _: "commit").state == "committed"
    assert shown(engine)[0] == [b"order 1"]


def test_a_transaction_without_messages_is_prepared_and_decided(engine: Engine) -> None:
    outcome = engine.send_in_transaction([], lambda _: "commit", tx_id="T")
    assert (outcome.state, outcome.messages) == ("committed", 0)


# --- decided meanwhile ----------------------------------------------------------------------------


def test_the_callback_local_may_call_commit(engine: Engine) -> None:
    """After that, it may return "commit" or "unknown"."""
    for number, answer in enumerate(("commit", "unknown")):

        def local(tx: Transaction, answer: str = answer) -> str:
            tx.commit()
            return answer

        assert sent(engine, local, tx_id=f"T{number}").state == "committed"


def test_an_exception_after_the_decision_has_no_note(engine: Engine) -> None:
    """Nothing is undecided."""

    def local(tx: Transaction) -> Any:
        tx.commit()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        sent(engine, local)
    assert not hasattr(caught.value, "__notes__")
    assert engine.outcome("T").state == "committed"


def test_a_decision_of_another_caller_stands(engine: Engine) -> None:
    """The same answer is a success. The opposite one raises an error with the outcome."""
    for decision, answer in (("commit", "commit"), ("rollback", "unknown")):

        def local(tx: Transaction, decision: Any = decision, answer: str = answer) -> str:
            engine.decide(tx.tx_id, decision, decided_by="anna")
            return answer

        outcome = sent(engine, local, tx_id=f"{decision}, {answer}")
        assert outcome.decided_by == "anna"

    def too_late(tx: Transaction) -> str:
        engine.decide(tx.tx_id, "rollback", decided_by="anna")
        return "commit"

    with pytest.raises(AlreadyDecided) as caught:
        sent(engine, too_late)
    assert caught.value.outcome.decided_by == "anna"


def test_an_engine_that_fails_does_not_hide_the_exception_of_local(clock: FakeClock) -> None:
    """The exception of local is raised, and the next opening asks."""
    disk = FaultDisk(CrashDisk())
    engine = opened(disk, clock)

    def local(tx: Transaction) -> Any:
        disk.fail("write")
        with pytest.raises(EngineFailed):
            engine.send("t", b"1")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        sent(engine, local)
    engine.close()
    with opened(disk, clock) as again:
        assert asked(again) == ["T"]


def test_the_checker_decides_after_local_answers_unknown(clock: FakeClock) -> None:
    with opened(CrashDisk(), clock) as engine:
        engine.checker("p")(lambda question: "commit")
        assert sent(engine, lambda _: "unknown", check_after=1000.0).state == "undecided"
        assert engine.settle().committed == ("T",)
