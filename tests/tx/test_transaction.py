"""A transaction as its user holds it: phases, blocks, ids."""

from __future__ import annotations

import copy
import errno
import gc
import pickle
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

import pytest

from fmq import Engine, Message, Transaction
from fmq.errors import (
    AlreadyDecided,
    Closed,
    EngineFailed,
    StorageFull,
    TxIdInUse,
    UnknownTransaction,
    WrongState,
)
from fmq.testing import FaultDisk
from fmq.tx.commands.buffer import Phase
from tests.small import CrashDisk, bodies, check, opened


@pytest.fixture
def disk() -> CrashDisk:
    return CrashDisk()


@pytest.fixture
def engine(disk: CrashDisk) -> Iterator[Engine]:
    with opened(disk, queues=3) as engine:
        yield engine
    check(disk)


def begun(engine: Engine, tx_id: str | None = "T") -> Transaction:
    tx = engine.transaction(tx_id=tx_id, producer="checkout")
    tx.send("orders", b"1", queue=0)
    tx.send_many("emails", [b"2", Message(b"3", tag="x")], queue=1)
    return tx


def nothing_seen(engine: Engine) -> bool:
    return not bodies(engine, "orders") and not bodies(engine, "emails", 1)


def all_seen(engine: Engine) -> bool:
    return bodies(engine, "orders") == [b"1"] and bodies(engine, "emails", 1) == [b"2", b"3"]


# --- one phase ------------------------------------------------------------------------------------


def test_a_block_commits_at_its_end_in_one_sync(engine: Engine) -> None:
    engine.send("orders", b"", queue=2)
    syncs = engine.stats().syncs
    with engine.transaction() as tx:
        assert tx.send("orders", b"1", queue=0) is None  # type: ignore[func-returns-value]
        tx.send_many("emails", [b"2", b"3"], queue=1)
        assert nothing_seen(engine)
    assert all_seen(engine)
    assert engine.stats().syncs == syncs + 1


def test_commit_returns_the_same_receipts_when_repeated(engine: Engine) -> None:
    tx = begun(engine)
    receipts = tx.commit()
    assert [(r.topic, r.queue, r.offset, r.count) for r in receipts] == [
        ("orders", 0, 0, 1),
        ("emails", 1, 0, 2),
    ]
    for receipt in receipts:
        (first, *_) = engine.read(receipt.topic, queue=receipt.queue, offset=receipt.offset)
        assert first.position == receipt.position
        assert (first.tx_id, first.producer) == ("T", "checkout")
    assert tx.commit() == receipts


def test_an_empty_transaction_can_be_committed(engine: Engine) -> None:
    assert engine.transaction(tx_id="E").commit() == []
    assert engine.outcome("E").state == "committed"


def test_rolling_back_to_a_savepoint_ends_later_ones(engine: Engine) -> None:
    """A later one would restore acks that are no longer held. The earlier one stays."""
    engine.send("in", b"1")
    with engine.consumer("in", group="g") as consumer:
        (delivery,) = consumer.poll()
        tx = engine.transaction()
        tx.send("t", b"0")
        outer = tx.savepoint()
        tx.ack(delivery)
        tx.send("t", b"1")
        inner = tx.savepoint()
        outer()
        for _ in range(2):
            tx.send("t", b"2")
            with pytest.raises(WrongState, match="Nothing was changed"):
                inner()
            assert (tx.messages, tx._buffer.acks) == (2, [])
            again = tx.savepoint()
            tx.send("t", b"3")
            again()
            assert tx.messages == 2
            outer()
            assert tx.messages == 1
        delivery.release()
        tx.commit()
        assert engine.groups("g")[0].acked_below == 0


def test_a_topic_without_committed_messages_is_not_created(
    engine: Engine,
) -> None:
    """A savepoint drops its messages, or send_many refuses one of them."""
    with engine.transaction() as tx:
        tx.send("kept", b"1")
        back = tx.savepoint()
        tx.send("dropped", b"2")
        back()
        with pytest.raises(TypeError):
            tx.send_many("refused", [b"3", "no bytes"])  # type: ignore[list-item]
        tx.send("dropped later", b"4")
        back()
        tx.send("kept too", b"5")
    assert {queue.topic for queue in engine.queues()} == {"kept", "kept too"}


def test_nothing_is_written_before_commit(engine: Engine) -> None:
    position = engine.stats().position
    tx = begun(engine)
    assert engine.stats().position == position
    assert not engine.undecided()
    tx.rollback()
    assert engine.stats().position == position


# --- with blocks ----------------------------------------------------------------------------------


class Trouble(Exception):
    pass


def test_a_block_that_raises_before_prepare_rolls_back(engine: Engine) -> None:
    position = engine.stats().position
    with pytest.raises(Trouble) as caught, engine.transaction(tx_id="T") as tx:
        tx.send("orders", b"1")
        raise Trouble
    assert not hasattr(caught.value, "__notes__")
    assert engine.stats().position == position
    with pytest.raises(WrongState, match="rolled back"):
        tx.commit()


@dataclass(frozen=True)
class Rigid(Exception):
    """One that takes no note, as nothing of it can be set."""

    code: int


def test_a_block_raises_its_exception_even_if_no_note_can_be_added(engine: Engine) -> None:
    with pytest.raises(Rigid) as caught, engine.transaction(tx_id="T") as tx:
        tx.send("orders", b"1")
        tx.prepare()
        raise Rigid(3)
    assert caught.value.code == 3
    assert engine.outcome("T").state == "undecided"
    tx.rollback()


def test_a_block_whose_commit_is_refused_rolls_back() -> None:
    """No code is left that could commit again, so the id and the deliveries are free."""
    disk = FaultDisk(CrashDisk())
    with opened(disk) as engine, engine.consumer("in", group="g") as consumer:
        engine.send("in", b"0")
        disk.fail("create", error=errno.ENOSPC, persistently=True)
        (delivery,) = consumer.poll()
        with pytest.raises(StorageFull):
            while True:
                engine.send("audit", bytes(100))
        with pytest.raises(StorageFull), engine.transaction(tx_id="T") as tx:
            tx.ack(delivery)
            tx.send("orders", bytes(1000))
        assert tx.phase is Phase.ROLLED_BACK
        disk.heal()
        delivery.release()
        assert [again.offset for again in consumer.poll()] == [0]
        with engine.transaction(tx_id="T") as tx:
            tx.send("orders", b"1")
        assert bodies(engine, "orders") == [b"1"]


@pytest.mark.parametrize("trouble", [Trouble, KeyboardInterrupt])
def test_a_block_that_raises_after_prepare_adds_a_note_on_undecided(
    engine: Engine, trouble: type[BaseException]
) -> None:
    with pytest.raises(trouble) as caught, begun(engine) as tx:
        tx.prepare()
        raise trouble
    (note,) = caught.value.__notes__
    assert "'T'" in note
    assert "undecided" in note
    assert [each.tx_id for each in engine.undecided()] == ["T"]
    assert nothing_seen(engine)
    tx.commit()
    assert all_seen(engine)


def test_a_failed_commit_after_prepare_adds_a_note_on_undecided() -> None:
    disk = CrashDisk()
    with pytest.raises(Closed) as caught, opened(disk, queues=3) as engine, begun(engine) as tx:
        tx.prepare()
        engine.close()
    (note,) = caught.value.__notes__
    assert "'T' was prepared before this exception and stays undecided" in note
    with opened(disk, queues=3) as engine:
        assert [each.tx_id for each in engine.undecided()] == ["T"]


def test_a_block_refused_by_the_opposite_decision_has_no_note(engine: Engine) -> None:
    """It is decided, and the error has the outcome."""
    with pytest.raises(AlreadyDecided) as caught, begun(engine) as tx:
        tx.prepare()
        engine.decide("T", "rollback")
    assert not hasattr(caught.value, "__notes__")


@pytest.mark.parametrize("phases", [1, 2])
def test_a_disk_error_at_the_end_of_a_block_names_the_call_that_tells_the_outcome(
    phases: int,
) -> None:
    disk = FaultDisk(CrashDisk())
    with opened(disk, queues=3) as engine:
        with pytest.raises(EngineFailed) as caught, begun(engine) as tx:
            if phases == 2:
                tx.prepare()
            disk.fail("write", error=errno.EIO, names="*.seg")
        (note,) = caught.value.__notes__
        assert "engine.outcome('T') tells" in note


@pytest.mark.parametrize("step", ["commit", "prepare"])
def test_a_block_that_suppresses_a_failed_step_raises_at_its_end(step: str) -> None:
    """The code after the block would take the transaction for committed."""
    disk = FaultDisk(CrashDisk())
    silent = pytest.raises(WrongState, match=r"in doubt.*engine\.outcome\('T'\) tells")
    with opened(disk, queues=3) as engine, silent, begun(engine) as tx:
        disk.fail("write", error=errno.EIO, names="*.seg")
        with suppress(EngineFailed):
            getattr(tx, step)()


def test_a_block_that_prepared_commits_at_its_end(engine: Engine) -> None:
    with begun(engine) as tx:
        tx.prepare()
        assert engine.outcome("T").state == "undecided"
    assert all_seen(engine)


@pytest.mark.parametrize("decision", ["commit", "rollback"])
def test_a_block_may_commit_or_roll_back_before_its_end(engine: Engine, decision: str) -> None:
    with begun(engine) as tx:
        getattr(tx, decision)()
    assert all_seen(engine) is (decision == "commit")


def test_a_block_that_raises_after_commit_stays_committed(engine: Engine) -> None:
    with pytest.raises(Trouble) as caught, begun(engine) as tx:
        tx.commit()
        raise Trouble
    assert not hasattr(caught.value, "__notes__")
    assert all_seen(engine)


# --- two phases -----------------------------------------------------------------------------------


def test_a_prepared_transaction_is_durable_and_invisible(engine: Engine, disk: CrashDisk) -> None:
    tx = begun(engine)
    tx.prepare()
    assert nothing_seen(engine)
    for state in disk.states():
        with opened(state) as after:
            (undecided,) = after.undecided()
            assert (undecided.tx_id, undecided.producer) == ("T", "checkout")
            assert (undecided.messages, undecided.bytes) == (3, 3)
            assert undecided.topics == ("orders", "emails")
            assert nothing_seen(after)
    tx.rollback()


def test_commit_after_prepare_publishes_all_messages(engine: Engine) -> None:
    tx = begun(engine)
    tx.prepare()
    receipts = tx.commit()
    assert all_seen(engine)
    assert tx.commit() == receipts
    assert not engine.undecided()


def test_rollback_after_prepare_never_shows_a_message(engine: Engine, disk: CrashDisk) -> None:
    tx = begun(engine)
    tx.prepare()
    tx.rollback()
    tx.rollback()  # again: a success
    assert nothing_seen(engine)
    assert engine.outcome("T").state == "rolled back"
    with opened(disk.after_power_loss(1), queues=3) as after:
        assert nothing_seen(after)
        assert not after.undecided()


STEPS = {
    "send": lambda tx: tx.send("orders", b""),
    "send_many": lambda tx: tx.send_many("orders", [b""]),
    "prepare": lambda tx: tx.prepare(),
    "commit": lambda tx: tx.commit(),
    "rollback": lambda tx: tx.rollback(),
}
WRONG = [
    ("prepare", "send"),
    ("prepare", "send_many"),
    ("prepare", "prepare"),
    ("commit", "send"),
    ("commit", "send_many"),
    ("commit", "prepare"),
    ("commit", "rollback"),
    ("rollback", "send"),
    ("rollback", "send_many"),
    ("rollback", "prepare"),
    ("rollback", "commit"),
]


@pytest.mark.parametrize("prepared", [False, True])
@pytest.mark.parametrize(("first", "then"), WRONG)
def test_a_step_in_the_wrong_order_changes_nothing(
    engine: Engine, first: str, then: str, prepared: bool
) -> None:
    tx = begun(engine)
    if prepared and first != "prepare":
        tx.prepare()
    STEPS[first](tx)
    position, before = engine.stats().position, bodies(engine, "orders")
    if (first, then) == ("commit", "rollback") or (prepared and then == "commit"):
        with pytest.raises(AlreadyDecided, match="nothing was changed") as caught:
            STEPS[then](tx)
        assert caught.value.outcome == tx.outcome() == engine.outcome(tx.tx_id)
    else:
        with pytest.raises(WrongState, match=f"{then.removesuffix('_many')} cannot follow"):
            STEPS[then](tx)
    assert (engine.stats().position, bodies(engine, "orders")) == (position, before)
    if first == "prepare":
        tx.rollback()


# --- ids ------------------------------------------------------------------------------------------


def test_the_id_of_an_open_transaction_is_in_use(engine: Engine) -> None:
    tx = begun(engine)
    with pytest.raises(TxIdInUse, match="'T' is open"):
        engine.transaction(tx_id="T")
    tx.prepare()
    with pytest.raises(TxIdInUse, match="'T' is undecided"):
        engine.transaction(tx_id="T")
    tx.commit()
    with pytest.raises(TxIdInUse, match=r"'T' was committed at [-0-9]{10}T[:0-9]{8}Z, within"):
        engine.transaction(tx_id="T")


def test_the_id_of_an_undecided_transaction_is_in_use_after_a_restart(disk: CrashDisk) -> None:
    with opened(disk) as engine:
        begun_small = engine.transaction(tx_id="T")
        begun_small.prepare()
    with opened(disk) as engine:
        with pytest.raises(TxIdInUse, match="'T' is undecided"):
            engine.transaction(tx_id="T")
        engine.decide("T", "rollback")
        with pytest.raises(TxIdInUse, match="'T' was rolled back"):
            engine.transaction(tx_id="T")


def test_rollback_before_prepare_frees_the_id(engine: Engine) -> None:
    begun(engine).rollback()
    with pytest.raises(UnknownTransaction):
        engine.outcome("T")
    begun(engine).commit()
    assert all_seen(engine)


def test_a_garbage_collected_open_transaction_frees_its_id(engine: Engine) -> None:
    begun(engine)
    gc.collect()
    begun(engine).commit()


def test_an_open_transaction_has_no_outcome_yet(engine: Engine) -> None:
    tx = begun(engine)
    with pytest.raises(UnknownTransaction, match="not been prepared"):
        engine.outcome("T")
    with pytest.raises(UnknownTransaction, match="not been prepared"):
        engine.decide("T", "commit")
    tx.rollback()


def test_a_prepared_transaction_may_be_decided_by_another_caller(engine: Engine) -> None:
    tx = begun(engine)
    tx.prepare()
    outcome = engine.decide("T", "commit", reason="ticket 4711", decided_by="anna")
    assert tx.commit() == list(outcome.receipts)
    other = begun(engine, "U")
    other.prepare()
    engine.decide("U", "rollback")
    with pytest.raises(AlreadyDecided):
        other.commit()
    other.rollback()


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_transaction_cannot_be_copied(again: Callable[[object], object]) -> None:
    """Two copies would commit under one id."""
    with opened(CrashDisk()) as engine, engine.transaction(tx_id="T") as tx:
        tx.send("t", b"1")
        with pytest.raises(TypeError, match="'T' cannot be copied"):
            again(tx)
