"""What these tests send, and look for."""

from __future__ import annotations

from typing import Any

from fmq import Engine
from fmq.testing.inside import inside
from fmq.tx.ledger.carryover import carried_of

KEEP = 12288  # three segments


def send(engine: Engine, count: int, topic: str = "t") -> None:
    for _ in range(count):
        engine.send(topic, b"x" * 500)


def first_of(engine: Engine, topic: str = "t") -> int:
    return engine.queues(topic)[0].first


UNREAD_GOES: dict[str, Any] = {"retain_bytes": KEEP, "keep_unread": False}


def acks(engine: Engine) -> Any:
    """Of all groups, as a checkpoint carries it."""
    return carried_of(inside(engine).ledger)["acks"]
