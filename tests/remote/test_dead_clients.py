"""A client that dies gives everything back, also what its open transaction held."""

from __future__ import annotations

from typing import Any

from fmq import Engine
from fmq.testing import CrashDisk, FakeClock
from fmq.testing.transport import MemoryServer, MemoryWire
from tests.small import check, opened


class Dialled(MemoryServer):
    """Knows the connections of its clients."""

    def __init__(self, engine: Engine, clock: FakeClock) -> None:
        super().__init__(engine, clock)
        self.wires: list[MemoryWire] = []

    def dial(self) -> MemoryWire:
        self.wires.append(super().dial())
        return self.wires[-1]


def test_messages_held_by_a_dead_clients_transaction_go_to_others_at_once() -> None:
    disk, clock = CrashDisk(), FakeClock()
    with opened(disk, clock) as engine:
        server = Dialled(engine, clock)
        engine.send_many("t", [b"1", b"2"])
        client: Any = server.connect()
        dead = client.consumer("t", group="g")
        tx = client.transaction()
        for delivery in dead.poll(limit=2):
            tx.ack(delivery)
        with engine.consumer("t", group="g") as other:
            assert other.poll() == []
            server.wires[-1].close()
            assert [each.body for each in other.poll()] == [b"1", b"2"]
    check(disk)
