"""The shop once more, in SQLAlchemy: orders that are objects."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import sqlalchemy
from sqlalchemy import Engine, event
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

import fmq
import fmq.bind
from tests.bind.shop import PRODUCER


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    name: Mapped[str] = mapped_column(primary_key=True)


def database(folder: Path, **options: Any) -> Engine:
    """Make the shop's database with its tables, as durable as fmq is."""
    database = sqlalchemy.create_engine(f"sqlite:///{folder}/shop.db", **options)
    event.listen(database, "connect", durable)
    Base.metadata.create_all(database)
    fmq.bind.create_table(database)
    return database


def durable(connection: Any, record: object) -> None:
    connection.execute("PRAGMA journal_mode = WAL").close()
    connection.execute("PRAGMA synchronous = FULL").close()
    connection.execute("PRAGMA foreign_keys = ON").close()


class AnswerLost(sqlite3.Connection):
    """A connection whose next commit raises an error of unknown outcome, if a test asks for it."""

    happens: bool | None = None
    error: BaseException = sqlite3.OperationalError("disk I/O error")

    def commit(self) -> None:
        happens, self.happens = self.happens, None
        if happens is None:
            super().commit()
            return
        if happens:
            super().commit()
        else:
            super().rollback()
        raise self.error


def driver_of(session: Session) -> Any:
    return session.connection().connection.dbapi_connection


def place(engine: fmq.Engine, session: Session | Any, order: str, tx_id: str | None = None) -> None:
    """Place one order: a row and a message, or neither."""
    with engine.transaction(tx_id=tx_id, producer=PRODUCER, bind=session) as tx:
        session.add(Order(name=order))
        tx.send("orders", order.encode())


def rows(database: Engine) -> list[str]:
    with database.connect() as connection:
        return [name for (name,) in connection.exec_driver_sql("SELECT name FROM orders")]
