"""A client that names a database has it asked about what a crash left undecided."""

from __future__ import annotations

from pathlib import Path

import fmq
from tests.bind.shop import PRODUCER, connect, leave_prepared


def test_a_client_asks_the_database_of_resolve(tmp_path: Path) -> None:
    """The row of the first order is committed, that of the second one is not."""
    database = connect(tmp_path)
    with fmq.open(tmp_path / "shop") as engine, engine.serve():
        with engine.transaction(tx_id="one", producer=PRODUCER, bind=database) as tx:
            tx.send("orders", b"one")
        leave_prepared(engine, "two")
        resolve = {PRODUCER: f"sqlite:///{tmp_path}/shop.db"}
        with fmq.connect(tmp_path / "shop", resolve=resolve) as client:
            assert client.undecided() == []
        assert engine.outcome("one").state == "committed"
        assert engine.outcome("two").state == "rolled back"
    database.close()
