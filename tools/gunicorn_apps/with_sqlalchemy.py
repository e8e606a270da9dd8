"""The shop with SQLAlchemy: plain WSGI, and an outbox attached to its sessions."""

import os
import sqlite3
from collections.abc import Callable
from typing import Any

import sqlalchemy
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, sessionmaker
from sqlalchemy.pool import NullPool

import fmq
import fmq.bind
import fmq.bind.sqlalchemy

HOME = os.environ["HOME_OF_SHOP"]


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    name: Mapped[str] = mapped_column(primary_key=True)


# No pool: a connection of SQLite must not be carried over a fork (--preload).
database = sqlalchemy.create_engine(
    f"sqlite:///{HOME}/shop.db", poolclass=NullPool, connect_args={"timeout": 30}
)


@sqlalchemy.event.listens_for(database, "connect")
def set_up(connection: sqlite3.Connection, _: object) -> None:
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")


Base.metadata.create_all(database)
fmq.bind.create_table(database)
Session = sessionmaker(database)
engine = fmq.connect(f"{HOME}/queue", resolve={"shop": database}, lazy=True)
outbox = fmq.bind.sqlalchemy.attach(Session, engine, producer="shop")


def application(environ: dict[str, Any], start_response: Callable[..., object]) -> list[bytes]:
    name = environ["PATH_INFO"].strip("/")
    with Session() as session:
        session.add(Order(name=name))
        outbox.of(session).send("orders", name.encode())
        session.commit()
    start_response("201 Created", [])
    return [b"ordered\n"]


def prepare() -> None:
    """Do nothing: the import has made the tables, once, before any server starts."""
