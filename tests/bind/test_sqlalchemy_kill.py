"""Wherever a process that uses SQLAlchemy is killed, the row and the message agree."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy import Engine, delete, event
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

import fmq
import fmq.bind
from fmq.bind.sqlalchemy import attach
from tests.bind.orm import Base, Order, durable, place, rows
from tests.bind.shop import PRODUCER, messages


def follow(engine: fmq.Engine, session: Session, order: str) -> None:
    """Place an order by the session's own commit."""
    outbox = attach(session, engine, producer=PRODUCER)
    session.add(Order(name=order))
    outbox.of(session).send("orders", order.encode())
    session.commit()


Way = Callable[[fmq.Engine, Session, str], None]
WAYS: list[Way] = [place, follow]


class Death:
    """Kills the process at the given event of SQLAlchemy, counted from 1."""

    def __init__(self, moment: int) -> None:
        self.left = moment

    def listen(self, database: Engine, session: Session) -> None:
        for name in ("before_cursor_execute", "after_cursor_execute", "commit"):
            event.listen(database, name, self.come)
        event.listen(session, "after_commit", self.come, insert=True)

    def come(self, *what: Any) -> None:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def dies(url: str, folder: Path, way: Way, moment: int) -> bool:
    """Place an order whole and one until the given event, and return whether the process died."""
    child = os.fork()
    if child == 0:
        try:
            database = connected(url)
            with fmq.open(folder) as engine, Session(database) as session:
                way(engine, session, "whole")
                Death(moment).listen(database, session)
                way(engine, session, "cut")
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert status in (0, signal.SIGKILL)
    return status != 0


def connected(url: str) -> Engine:
    database = sqlalchemy.create_engine(url, poolclass=NullPool)
    if database.dialect.name == "sqlite":
        event.listen(database, "connect", durable)
    return database


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/shop.db"
    address: str = request.getfixturevalue("address")
    return address.replace("postgresql:", "postgresql+psycopg:")


@pytest.fixture
def database(url: str) -> Iterator[Engine]:
    database = connected(url)
    Base.metadata.drop_all(database)
    Base.metadata.create_all(database)
    fmq.bind.create_table(database)
    yield database
    database.dispose()


@pytest.mark.parametrize("way", WAYS)
def test_a_process_that_is_killed_leaves_both_or_neither(
    database: Engine, url: str, tmp_path: Path, way: Way
) -> None:
    """Kill it before and after every statement, and on both sides of COMMIT. The next process goes
    on.

    The parent has no thread and no connection when it forks.
    """
    seen = []
    for moment in count(1):
        with database.begin() as connection:
            connection.execute(delete(Order))
        folder = tmp_path / str(moment)
        died = dies(url, folder, way, moment)
        with fmq.open(folder, resolve={PRODUCER: database}) as engine:
            assert engine.undecided() == []
            assert rows(database) == messages(engine), f"killed at moment {moment}"
            seen.append(len(rows(database)))
            with Session(database) as session:
                way(engine, session, "next")
            assert rows(database) == messages(engine)
        if not died:
            break
    assert moment > 8
    assert seen == sorted(seen), "the earlier it is killed, the less is there"
    assert set(seen) == {1, 2}, "it was killed on both sides of the commit"
