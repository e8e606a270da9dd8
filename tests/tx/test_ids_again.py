"""One id, two transactions: never two prepared at once, and each handle decides its own alone."""

from __future__ import annotations

import pytest

from fmq.errors import TxIdInUse, UnknownTransaction
from fmq.store.kinds import Prepare
from tests.small import CrashDisk, FakeClock, bodies, check, opened


@pytest.mark.parametrize("step", ["prepare", "commit"])
def test_an_id_that_the_engine_made_and_somebody_else_used_is_refused_at_the_first_step(
    step: str,
) -> None:
    disk = CrashDisk()
    with opened(disk) as engine:
        one = engine.transaction()
        other = engine.transaction(tx_id=one.tx_id)
        one.send("t", b"one")
        other.send("t", b"other")
        other.prepare()
        with pytest.raises(TxIdInUse):
            getattr(one, step)()
        assert [tx.tx_id for tx in engine.undecided()] == [other.tx_id]
        other.commit()
        assert bodies(engine, "t") == [b"other"]
    check(disk)
    with opened(disk.after_kill()) as engine:
        assert bodies(engine, "t") == [b"other"]


def test_one_that_was_refused_leaves_alone_who_uses_its_id() -> None:
    """What is being prepared is marked; a refusal takes away only its own mark."""
    with opened(CrashDisk()) as engine:
        preparing = engine._parts.manager.in_use.preparing
        one = engine.transaction()
        prepare = preparing[one.tx_id] = Prepare(one.tx_id, "", 0, 0, 0, 0, b"")
        prepare.position = 1 << 40
        with pytest.raises(TxIdInUse):
            one.prepare()
        assert [*preparing] == [one.tx_id]
        preparing.clear()
        one.prepare()
        one.commit()


@pytest.mark.parametrize("later", ["undecided", "committed", "rolled back"])
@pytest.mark.parametrize("step", ["commit", "rollback"])
def test_a_handle_from_long_ago_decides_nothing_of_who_has_its_id_now(
    later: str, step: str
) -> None:
    clock = FakeClock()
    with opened(CrashDisk(), clock, outcome_window_seconds=60) as engine:
        first = engine.transaction(tx_id="order-1")
        first.send("t", b"first")
        first.prepare()
        engine.decide("order-1", "rollback")
        clock.advance(3600)
        second = engine.transaction(tx_id="order-1")
        second.send("t", b"second")
        second.prepare()
        if later == "committed":
            second.commit()
        elif later == "rolled back":
            second.rollback()
        with pytest.raises(UnknownTransaction, match="another one"):
            getattr(first, step)()
        assert engine.outcome("order-1").state == later
        assert bodies(engine, "t") == ([b"second"] if later == "committed" else [])


def test_a_handle_knows_its_transaction_when_it_was_written_again() -> None:
    with opened(CrashDisk(), relocate_bytes=1) as engine:
        tx = engine.transaction(tx_id="T")
        tx.send("t", b"body")
        tx.prepare()
        before = engine.undecided()[0].position
        for _ in range(40):
            engine.send("u", b"x" * 400)
        assert engine.undecided()[0].position > before
        tx.commit()
        assert bodies(engine, "t") == [b"body"]
