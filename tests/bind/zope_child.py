"""Commits orders by the `transaction` package until it is killed in the middle of one:
`zope_child.py FOLDER CALL before|after`.

Dies at the CALL-th statement or commit of the driver, before or after it; prints "done" if there
were fewer.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
from pathlib import Path
from typing import Any

import transaction
import zope.sqlalchemy
from sqlalchemy.orm import Session

import fmq
from fmq.bind.zope import join
from tests.bind.orm import Order, database
from tests.bind.shop import PRODUCER


class Life:
    """How much of it is left."""

    calls_left = -1  # for ever
    after = False

    def call(self, *, after: bool) -> None:
        if self.after == after:
            self.calls_left -= 1
            if self.calls_left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


LIFE = Life()


class MortalCursor(sqlite3.Cursor):
    def execute(self, *arguments: Any) -> Any:
        LIFE.call(after=False)
        super().execute(*arguments)
        LIFE.call(after=True)
        return self


class Mortal(sqlite3.Connection):
    def cursor(self, *_: Any) -> Any:
        return super().cursor(MortalCursor)

    def commit(self) -> None:
        LIFE.call(after=False)
        super().commit()
        LIFE.call(after=True)


def place(engine: fmq.Engine, session: Session, order: str) -> None:
    tx = join(engine, session, producer=PRODUCER)
    session.add(Order(name=order))
    tx.send("orders", order.encode())
    transaction.commit()


def main(folder: Path, call: int, when: str) -> None:
    session = Session(database(folder, connect_args={"factory": Mortal}))
    zope.sqlalchemy.register(session)
    with fmq.open(folder / "shop") as engine:
        place(engine, session, "whole")
        LIFE.after = when == "after"
        LIFE.calls_left = call
        place(engine, session, "cut")
        LIFE.calls_left = -1
    print("done")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
