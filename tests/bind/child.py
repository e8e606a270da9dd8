"""Places orders until it dies in the middle of one: `child.py FOLDER CALL before|after KIND`.

Dies at its CALL-th call of the connection, before or after that has done its work; prints
"done" if it had fewer. The KIND of connection is "sqlite3", or "aiosqlite" over the same.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
from pathlib import Path
from typing import Any

import aiosqlite

import fmq
from tests.bind.shop import connect, place, place_on_loop


class Mortal(sqlite3.Connection):
    """A connection at whose calls its process may die."""

    calls_left = -1  # negative: it never dies
    after = False

    def execute(self, *arguments: Any) -> sqlite3.Cursor:
        self._die(after=False)
        cursor = super().execute(*arguments)
        self._die(after=True)
        return cursor

    def commit(self) -> None:
        self._die(after=False)
        super().commit()
        self._die(after=True)

    def _die(self, *, after: bool) -> None:
        if self.after == after:
            self.calls_left -= 1
            if self.calls_left == 0:
                os._exit(1)


def main(folder: Path, call: int, when: str) -> None:
    connection = connect(folder, Mortal)
    assert isinstance(connection, Mortal)
    with fmq.open(folder / "shop") as engine:
        place(engine, connection, "whole")
        connection.after = when == "after"
        connection.calls_left = call
        place(engine, connection, "cut")
        connection.calls_left = -1
    print("done")


async def main_on_loop(folder: Path, call: int, when: str) -> None:
    connect(folder).close()
    async with aiosqlite.connect(folder / "shop.db", factory=Mortal) as connection:
        mortal = connection._conn
        assert isinstance(mortal, Mortal)
        with fmq.open(folder / "shop") as engine:
            await place_on_loop(engine, connection, "whole")
            mortal.after = when == "after"
            mortal.calls_left = call
            await place_on_loop(engine, connection, "cut")
            mortal.calls_left = -1
    print("done")


if __name__ == "__main__":
    arguments = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    if sys.argv[4] == "aiosqlite":
        asyncio.run(main_on_loop(*arguments))
    else:
        main(*arguments)
