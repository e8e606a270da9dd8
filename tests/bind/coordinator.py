"""A coordinator of two-phase commit over PostgreSQL and fmq, as the guide's recipe has it.

A decision to commit is a line in a file, synced before the first store commits. A transaction
without a line was not decided, and is rolled back.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg

import fmq

NAME = "coordinator"
FORMAT_ID = 7


class Coordinator:
    """Knows its two stores, and the file with its decisions."""

    def __init__(
        self,
        decisions: Path,
        database: psycopg.Connection[Any],
        engine: fmq.Engine,
        step: Callable[[], None] = lambda: None,
    ) -> None:
        """Call `step` before the first step, and after each."""
        self._decisions = decisions
        self._database = database
        self._engine = engine
        self._step = step

    def insert_and_send(self, order: str) -> None:
        """Insert `order` into the database and send it, as one global transaction."""
        database, xid = self._database, psycopg.Xid(FORMAT_ID, order, "")
        self._step()
        database.tpc_begin(xid)
        branch = self._engine.transaction(tx_id=str(xid), producer=NAME)
        database.execute("INSERT INTO orders VALUES (%s)", (order,))
        branch.send("orders", order.encode())
        for act in (
            *(database.tpc_prepare, branch.prepare, lambda: self._write_down(str(xid))),
            *(database.tpc_commit, branch.commit),
        ):
            self._step()
            act()
        self._step()

    def recover(self) -> None:
        """End the branches that a crash left prepared, as the file of decisions says."""
        text = self._decisions.read_text() if self._decisions.exists() else ""
        decided = set(text.splitlines())
        for xid in self._database.tpc_recover():
            end = self._database.tpc_commit if str(xid) in decided else self._database.tpc_rollback
            end(xid)
        for left in self._engine.undecided():
            if left.producer == NAME:
                self._engine.decide(
                    left.tx_id,
                    "commit" if left.tx_id in decided else "rollback",
                    decided_by=NAME,
                )

    def _write_down(self, tx_id: str) -> None:
        with self._decisions.open("a") as file:
            file.write(f"{tx_id}\n")
            file.flush()
            os.fsync(file.fileno())
