"""The owner of a home dies, and the user's database decides at the next one what it has left."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import fmq
from tests.bind.databases import Database
from tests.bind.shop import PRODUCER, leave_prepared
from tests.home.processes import fleet


def test_rows_and_messages_agree_at_the_next_owner(tmp_path: Path, database: Database) -> None:
    with fleet(tmp_path) as machines, closing(database.connect()) as connection:
        resolve = "--resolve", f"{PRODUCER}={database.address}"
        first = machines.standby("a", *resolve)
        first.wait_for("serving")
        machines.standby("b", *resolve).wait_for("standing by")
        with fmq.connect(machines.home, token_file=str(machines.token)) as client:
            with client.transaction(producer=PRODUCER, bind=connection) as tx:
                connection.execute("INSERT INTO orders VALUES ('before')")
                tx.send("orders", b"before")
            leave_prepared(client, "left")
            # The first owner dies in the middle of a block, which ends at the second.
            with client.transaction(producer=PRODUCER, bind=connection) as tx:
                connection.execute("INSERT INTO orders VALUES ('meanwhile')")
                tx.send("orders", b"meanwhile")
                first.kill()
            assert sorted(bytes(each.body) for each in client.read("orders")) == [
                b"before",
                b"meanwhile",
            ]
            rows = [name for (name,) in connection.execute("SELECT name FROM orders").fetchall()]
            assert sorted(rows) == ["before", "meanwhile"]
            # The database has no marker of it, so its program has never committed.
            client.settle()  # SQLite gave no answer while the block had it locked
            assert client.outcome("left").state == "rolled back"
            assert client.undecided() == []
