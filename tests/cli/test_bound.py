"""What is bound to a database is decided by that database, also if a person asks."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import fmq
from tests.bind.shop import PRODUCER, connect, leave_prepared, messages, place, rows
from tests.cli.command import fmq_json, fmq_table


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """`paid` has its row and `dropped` has none; their programs died, and so did that of `other`,
    which is not bound.
    """
    with (
        closing(connect(tmp_path)) as connection,
        fmq.open(tmp_path / "shop", background=False) as engine,
    ):
        tx = engine.transaction(tx_id="paid", producer=PRODUCER, bind=connection)
        tx.__enter__()
        connection.execute("INSERT INTO orders VALUES ('paid')")
        tx.send("orders", b"paid")
        tx.seal()
        connection.commit()
        leave_prepared(engine, "dropped")
        other = engine.transaction(tx_id="other", producer="stock")
        other.send("orders", b"other")
        other.prepare()
    return tmp_path


def resolved(folder: Path) -> str:
    return f"{PRODUCER}=sqlite:///{folder}/shop.db"


@pytest.mark.parametrize("served", [False, True])
def test_a_database_is_asked_once_and_decides(folder: Path, *, served: bool) -> None:
    ask = "tx", "ask", folder / "shop", "--resolve", resolved(folder)
    with fmq.open(folder / "shop") as engine:
        if served:
            engine.serve()
        else:
            engine.close()
        said = fmq_json(*ask)
        assert (said.code, said.error) == (0, "")
        states = {line["tx_id"]: line["state"] for line in said.lines}
        assert states == {"paid": "committed", "dropped": "rolled back"}
        assert fmq_json(*ask).lines == []
    with fmq.open(folder / "shop") as engine:
        assert messages(engine) == rows(folder) == ["paid"]
        assert [tx.tx_id for tx in engine.undecided()] == ["other"]


def test_a_program_that_comes_late_cannot_commit_what_was_asked_about(tmp_path: Path) -> None:
    """The database says rolled back only once that is sure."""
    with closing(connect(tmp_path)) as connection, fmq.open(tmp_path / "shop") as engine:
        engine.serve()
        tx = engine.transaction(tx_id="late", producer=PRODUCER, bind=connection)
        tx.__enter__()
        connection.execute("INSERT INTO orders VALUES ('late')")
        tx.send("orders", b"late")
        tx.seal()
        said = fmq_json(
            *("tx", "ask", tmp_path / "shop", "--resolve", resolved(tmp_path), "--wait", "0.5")
        )
        connection.commit()
        tx.confirm()
        state = engine.outcome("late").state
        assert (said.code, state, rows(tmp_path)) == (1, "committed", ["late"])


def test_nothing_is_decided_if_a_database_does_not_answer_or_is_not_named(folder: Path) -> None:
    shop = folder / "shop"
    gone = f"{PRODUCER}=sqlite:///{folder}/gone.db"
    said = fmq_json("tx", "ask", shop, "--resolve", gone, "--wait", "0.2")
    assert (said.code, {line["state"] for line in said.lines}) == (1, {"undecided"})
    assert "2 transactions still undecided" in said.error
    assert "gone.db" in said.error
    said = fmq_json("tx", "ask", shop, "other", "--resolve", resolved(folder))
    assert (said.code, "names no database of that" in said.error) == (3, True)
    said = fmq_json("tx", "ask", shop)
    assert (said.code, "--resolve" in said.error) == (3, True)


@pytest.mark.parametrize("decision", ["commit", "rollback"])
def test_a_person_does_not_decide_what_is_bound_unless_forced(folder: Path, decision: str) -> None:
    decide = "tx", "decide", folder / "shop", "paid", decision, "--reason", "the database is gone"
    said = fmq_json(*decide)
    assert (said.code, said.lines) == (3, [])
    assert f"--resolve {PRODUCER}=ADDRESS" in said.error
    assert "bound" in fmq_table("tx", "list", folder / "shop")
    assert [each["run"] for each in fmq_json("explain", folder / "shop", "paid").of("next")] == [
        f"fmq tx ask {folder / 'shop'} --resolve {PRODUCER}=ADDRESS"
    ]
    assert fmq_json(*decide, "--force").code == 0


def test_a_block_whose_transaction_was_rolled_back_by_hand_says_that_its_rows_are_there(
    tmp_path: Path,
) -> None:
    with closing(connect(tmp_path)) as first:
        first.close()

    class Slow(sqlite3.Connection):
        def commit(self) -> None:
            if undecided := engine.undecided():
                engine.decide(undecided[0].tx_id, "rollback", reason="impatient")
            super().commit()

    with (
        fmq.open(tmp_path / "shop") as engine,
        closing(connect(tmp_path, Slow)) as connection,
        pytest.raises(fmq.AlreadyDecided) as caught,
    ):
        place(engine, connection, "order")
    assert "the database has committed its rows" in "".join(caught.value.__notes__)
    assert rows(tmp_path) == ["order"]
