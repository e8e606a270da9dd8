"""An id is not used twice, also while its transaction is planned and not yet durable."""

from __future__ import annotations

import pytest

import fmq
from fmq.errors import TxIdInUse
from fmq.testing import CrashDisk, FakeClock


def commit(engine: fmq.Engine, body: bytes) -> None:
    with engine.transaction(tx_id="order-42") as tx:
        tx.send("orders", body)


def test_an_id_is_in_use_from_commit_on_though_the_call_does_not_wait() -> None:
    """With sync="interval" a commit returns before it is durable, and time stands still here, so
    nobody syncs before somebody asks.
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
