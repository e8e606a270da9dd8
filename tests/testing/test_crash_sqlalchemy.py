"""Sessions of SQLAlchemy, bound and followed, crashed wherever it makes a difference."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import sqlalchemy
from sqlalchemy import Engine, select
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

import fmq
from fmq.bind import checker_of, create_table
from fmq.bind.sqlalchemy import attach
from fmq.testing import World, crash
from tests.bind.orm import Base, Order
from tests.budget import SEED, within_budget


@contextmanager
def database(world: World) -> Iterator[Engine]:
    database = sqlalchemy.create_engine(f"sqlite:///{world.path}/shop.db", poolclass=NullPool)
    sqlalchemy.event.listen(
        database, "connect", lambda driver, record: driver.execute("PRAGMA synchronous = EXTRA")
    )
    Base.metadata.create_all(database)
    create_table(database)
    yield database
    database.dispose()


def workload(engine: fmq.Engine, world: World) -> None:
    """An order that is placed, one that is not, and one by the session's own commit."""
    with database(world) as found, Session(found) as session:
        for order in ("order 1", "order 2"):
            with (
                suppress(fmq.RollBack),
                engine.transaction(bind=session, tx_id=order, producer="shop") as tx,
            ):
                session.add(Order(name=order))
                tx.send("orders", order.encode())
                if order == "order 2":
                    raise fmq.RollBack
        world.tell("order 1")
        outbox = attach(session, engine, producer="shop")
        session.add(Order(name="order 3"))
        outbox.of(session).send("orders", b"order 3")
        session.commit()
        world.tell("order 3")


def recover(engine: fmq.Engine, world: World) -> None:
    """Do what `fmq.open(..., resolve={"shop": ...})` does."""
    engine.checker("shop")(checker_of(f"sqlite+pysqlite:///{world.path}/shop.db"))
    engine.settle()


def check(engine: fmq.Engine, world: World) -> None:
    with database(world) as found, Session(found) as session:
        placed = list(session.scalars(select(Order.name).order_by(Order.name)))
    messages = [bytes(message.body).decode() for message in engine.read("orders")]
    assert placed == messages, f"{placed=} {messages=}"
    assert list(world.told) == placed[: len(world.told)]
    assert engine.undecided() == []


def test_bound_sessions_of_sqlalchemy_survive_every_crash() -> None:
    """Rows and messages agree after every crash, those of the recovery included. FMQ_BUDGET=4 tries
    as many states of each as a program has by default.
    """
    report = crash(workload, check, recover=recover, states_max=within_budget(2), seed=SEED)
    assert report.states > report.points > 60
