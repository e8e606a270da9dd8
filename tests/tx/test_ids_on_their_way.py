"""What is planned and not yet durable: its ids and offsets are given to nothing else."""

from __future__ import annotations

import pytest

import fmq
from fmq.errors import TxIdInUse
from fmq.testing import CrashDisk, FakeClock, FaultDisk
from tests.interrupts import in_thread
from tests.small import bodies


def commit(engine: fmq.Engine, body: bytes) -> None:
    with engine.transaction(tx_id="order-42") as tx:
        tx.send("orders", body)


def test_an_id_is_in_use_as_soon_as_its_commit_is_planned() -> None:
    """With sync="interval" a commit returns before it is durable, and no sync comes while the clock
    stands still.
    """
    options = fmq.Options(segment_bytes=4096, sync="interval")
    with fmq.open("data", options, disk=CrashDisk(), clock=FakeClock()) as engine:
        commit(engine, b"first")
        with pytest.raises(TxIdInUse):
            commit(engine, b"second")
        assert engine.outcome("order-42").state == "committed"
        with pytest.raises(TxIdInUse):
            commit(engine, b"third")
        assert [each.body for each in engine.read("orders")] == [b"first"]


def test_a_prepare_takes_no_offset_from_a_planned_send() -> None:
    """A prepare gives out no offset, so a send planned after it gets the first one."""
    disk = FaultDisk(CrashDisk())
    with fmq.open("data", disk=disk, clock=FakeClock()) as engine:
        tx = engine.transaction()
        tx.send("t", b"prepared")

        def send() -> None:
            in_thread(lambda: engine.send("t", b"1", sync=False), "a send while another one writes")

        disk.before("write", send, names="*.seg")
        tx.prepare()
        engine.send("t", b"2")
        assert bodies(engine, "t") == [b"1", b"2"]
