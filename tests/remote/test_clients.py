"""The clients of an engine's process, as `clients` lists them on each side."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

import fmq
from fmq.testing import CrashDisk, FakeClock
from fmq.testing.transport import MemoryServer
from tests.conftest import OPTIONS, PATH
from tests.remote.test_network import port_of


def test_an_engine_that_serves_nobody_has_no_clients(engine: fmq.Engine) -> None:
    assert engine.clients() == []


def test_each_client_is_listed_with_its_process_and_what_it_has(
    disk: CrashDisk, clock: FakeClock
) -> None:
    with fmq.open(PATH, OPTIONS, disk=disk, clock=clock, background=False) as engine:
        server = MemoryServer(engine, clock)
        began = clock.time_us()
        with server.connect() as one, server.connect() as two:
            one.send("t", b"1")
            consumer = two.consumer("t", group="g", member="ann")
            consumer.poll()
            tx = two.transaction(tx_id="open-1")
            tx.send("t", b"2")
            clock.advance(10)
            found = {each.members: each for each in engine.clients()}
            assert {*found} == {(), (("g", "ann"),)}
            first, second = found[()], found[("g", "ann"),]
            assert first.id != second.id
            for each in found.values():
                assert (each.host, each.pid) == (socket.gethostname(), os.getpid())
                assert each.address is None
                assert each.since.timestamp() * 1e6 >= began - 1
            assert second.transactions == ("open-1",)
            assert first.transactions == ()
            assert second.calls > first.calls > 0
            assert second.calls_per_second > first.calls_per_second > 0
            calls = first.calls
            for _ in range(20):
                one.send("t", b"more")
            clock.advance(10)
            later = next(each for each in engine.clients() if each.id == first.id)
            assert 20 <= later.calls - calls <= 22
            assert later.calls_per_second == pytest.approx(2, rel=0.1)
            assert {each.id for each in two.clients()} == {first.id, second.id}
            [held] = one.group("g").in_hand()
            assert (held.member, held.pid) == ("ann", os.getpid())
            tx.rollback()
            consumer.close()
            again = two.consumer("t", group="g", member="bob")
            assert len(again.poll(limit=2)) == 2
        assert engine.clients() == []
        gone, left = engine.group("g").former_members()
        assert (gone.name, gone.why, gone.held) == ("bob", "disconnected", 2)
        assert (gone.pid, left.name, left.why) == (os.getpid(), "ann", "left")
        server.close()


def test_clients_of_sockets_are_listed_until_they_close(tmp_path: Path) -> None:
    shop = tmp_path / "shop"
    with fmq.open(shop) as engine, engine.serve(), fmq.connect(shop) as client:
        [found] = client.clients()
        assert (found.host, found.pid) == (socket.gethostname(), os.getpid())
        assert found.address is None
        assert [each.id for each in engine.clients()] == [found.id]


def test_a_client_over_tcp_has_an_address(tmp_path: Path) -> None:
    token = str(tmp_path / "token")
    Path(token).write_text("ab" * 32)
    Path(token).chmod(0o600)
    with (
        fmq.open(tmp_path / "shop") as engine,
        engine.serve(tcp="127.0.0.1:0", token_file=token) as serving,
        fmq.connect(f"tcp://127.0.0.1:{port_of(serving)}", token_file=token) as client,
        client.consumer("t", group="g") as consumer,
    ):
        client.send("t", b"")
        [found] = engine.clients()
        assert found.address is not None
        assert found.address.startswith("127.0.0.1:")
        [delivery] = consumer.poll()
        [held] = engine.group("g").in_hand()
        assert held.address == found.address
        delivery.ack()
