"""A block on a loop that is bound to a connection of asyncio."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fmq
import fmq.aio
import fmq.bind

aiosqlite = pytest.importorskip("aiosqlite")


def test_rows_and_messages_commit_together_or_not_at_all(
    on_loop: Any, engine: fmq.Engine, tmp_path: Path
) -> None:
    async def story(face: fmq.aio.AsyncEngine) -> None:
        async with aiosqlite.connect(tmp_path / "shop.db") as connection:
            await connection.execute("PRAGMA synchronous = EXTRA")
            await connection.execute("CREATE TABLE orders (name)")
            await fmq.bind.create_table(connection)
            for name in ("kept", "dropped"):
                try:
                    async with face.transaction(producer="shop", bind=connection) as tx:
                        await connection.execute("INSERT INTO orders VALUES (?)", (name,))
                        assert fmq.current_transaction(face) is tx
                        assert tx is not None
                        tx.send("orders", name.encode())
                        if name == "dropped":
                            raise fmq.RollBack
                except fmq.RollBack:
                    pass
            async with face.consumer("orders", group="g") as consumer:
                (delivery,) = await consumer.poll(timeout=60)
                async with face.transaction(producer="shop", bind=connection) as tx:
                    await connection.execute("INSERT INTO orders VALUES ('passed on')")
                    tx.ack(delivery)
            assert (await face.groups("g"))[0].unread == 0
            rows = await (await connection.execute("SELECT name FROM orders")).fetchall()
            assert [name for (name,) in rows] == ["kept", "passed on"]
        assert [each.body for each in await face.read("orders")] == [b"kept"]

    on_loop(story)
