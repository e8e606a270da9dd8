"""One id, two transactions: never two prepared at once, and each handle decides its own alone."""

from __future__ import annotations

import pytest

from fmq.errors import TxIdInUse, UnknownTransaction
from fmq.tx.commands.ids import COUNTER
from tests.small import CrashDisk, FakeClock, bodies, check, opened


@pytest.mark.parametrize("ended", ["open", "committed", "undecided", "rolled back"])
def test_an_id_made_by_the_engine_cannot_be_given_to_another(ended: str) -> None:
    """Otherwise two would have one id. The engine does not note the ids that it makes itself."""
    disk = CrashDisk()
    with opened(disk) as engine:
        one = engine.transaction()
        one.send("t", b"one")
        if ended == "undecided":
            one.prepare()
        elif ended != "open":
            getattr(one, {"committed": "commit", "rolled back": "rollback"}[ended])()
        with pytest.raises(TxIdInUse, match=one.tx_id):
            engine.transaction(tx_id=one.tx_id)
        if ended in ("open", "undecided"):
            one.commit()
        assert bodies(engine, "t") == ([] if ended == "rolled back" else [b"one"])
    check(disk)
    with opened(disk.after_kill()) as engine:
        if ended == "rolled back":
            engine.transaction(
                tx_id=one.tx_id
            ).commit()  # by another engine than that which made it


def test_other_ids_shaped_like_those_of_the_engine_are_allowed() -> None:
    with opened(CrashDisk()) as engine:
        made = engine.transaction().tx_id
        number = int(made[24:], 16)
        ahead = f"{(number + 1000) & COUNTER:012x}"
        for name in (
            made[:24] + ahead,
            made[:14] + "7000-8000" + made[23:],
            made[:24] + "not hexadec.",
        ):
            engine.transaction(tx_id=name).commit()


@pytest.mark.parametrize("later", ["undecided", "committed", "rolled back"])
@pytest.mark.parametrize("step", ["commit", "rollback"])
def test_an_old_handle_cannot_decide_a_later_transaction_of_the_id(later: str, step: str) -> None:
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


def test_a_handle_finds_its_transaction_after_a_relocation() -> None:
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


@pytest.mark.parametrize("decision", ["commit", "rollback", None])
@pytest.mark.parametrize("phases", [1, 2])
def test_an_old_handle_gets_no_outcome_of_a_later_one_with_its_id(
    phases: int, decision: str | None
) -> None:
    clock = FakeClock()
    with opened(CrashDisk(), clock, outcome_window_seconds=5) as engine:
        old = engine.transaction(tx_id="q")
        old.send("new", b"1")
        if phases == 2:
            old.prepare()
        old.commit()
        assert old.outcome().state == "committed"
        clock.advance(6)
        other = engine.transaction(tx_id="q")
        other.send("t", b"2")
        other.prepare()
        if decision is not None:
            getattr(other, decision)()
        with pytest.raises(UnknownTransaction, match="another one's by now"):
            old.outcome()
        states = {"commit": "committed", "rollback": "rolled back", None: "undecided"}
        assert other.outcome().state == engine.outcome("q").state == states[decision]
