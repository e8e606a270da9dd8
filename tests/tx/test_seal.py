"""The seal: the same for the same messages, another one for anything else."""

from __future__ import annotations

from typing import Any

import pytest

from fmq import Message
from tests.small import CrashDisk, opened

Send = tuple[str, int, bytes, dict[str, Any]]
ONE: list[Send] = [("t", 0, b"1", {}), ("u", 0, b"2", {})]
OTHERS = [
    ONE[:1],
    ONE[::-1],
    [*ONE, ("t", 0, b"", {})],
    [("t", 0, b"1", {}), ("u", 0, b"3", {})],
    [("t", 0, b"1", {}), ("v", 0, b"2", {})],
    [("t", 1, b"1", {}), ("u", 0, b"2", {})],
    [("t", 0, b"1", {"key": "k"}), ("u", 0, b"2", {})],
    [("t", 0, b"1", {"tag": "k"}), ("u", 0, b"2", {})],
    [("t", 0, b"1", {"headers": {"a": "b"}}), ("u", 0, b"2", {})],
    [("t", 0, b"1", {"headers": {"a": "c"}}), ("u", 0, b"2", {})],
]


def seal(sends: list[Send], **options: Any) -> str:
    with opened(CrashDisk(), queues=2, **options) as engine:
        tx = engine.transaction()
        for topic, queue, body, more in sends:
            tx.send(topic, body, queue=queue, **more)
        tx.prepare()
        return tx.outcome().seal


def test_the_same_messages_have_the_same_seal() -> None:
    assert seal(ONE) == seal(ONE)


@pytest.mark.parametrize("other", OTHERS)
def test_other_messages_have_another_seal(
    other: list[Send],
) -> None:
    assert seal(other) != seal(ONE)


def test_the_seal_stays_the_same_from_prepare_to_the_outcome() -> None:
    disk = CrashDisk()
    with opened(disk) as engine:
        tx = engine.transaction(tx_id="T")
        tx.send_many("t", [b"1", Message(b"2", "k", "g", {"h": "v"})])
        tx.prepare()
        prepared = engine.undecided()[0].seal
    with opened(disk) as engine:
        assert engine.undecided()[0].seal == prepared
        assert engine.decide("T", "commit", seal=prepared).seal == prepared
    with opened(disk) as engine:
        assert engine.outcome("T").seal == prepared
