"""A directory with something of everything in it, closed."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import fmq

SMALL = fmq.Options(segment_bytes=16 * 1024, checkpoint_bytes=8 * 1024)


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """Messages, an ack, and a transaction of each outcome; `order-3` is undecided."""
    path = tmp_path / "shop"
    with fmq.open(path, SMALL, background=False) as engine:
        engine.send_many("audit", [b"a", b"b", b"c"])
        for number, decision in ((1, "commit"), (2, "rollback"), (3, None)):
            tx = engine.transaction(tx_id=f"order-{number}", producer="checkout")
            tx.send("orders", f"order {number}".encode(), key=f"c-{number}", tag="new")
            tx.send("emails", f"receipt {number}".encode())
            tx.prepare()
            if decision is not None:
                engine.decide(tx.tx_id, decision, reason="ticket 4711", decided_by="ada")  # type: ignore[arg-type]
        with engine.consumer("audit", group="billing") as consumer:
            consumer.poll(limit=2)[0].ack()
    return path


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Let interrupts reach the tests: in the background they would be ignored, also by child
    processes.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def segments(tmp_path: Path) -> Path:
    """Ten messages of 4 KiB, so that the journal has several segments."""
    path = tmp_path / "segments"
    with fmq.open(path, SMALL, background=False) as engine:
        for number in range(10):
            engine.send("big", bytes([number]) * 4096)
    return path
