"""What a directory holds, as JSON can say it: so a golden directory and what it must show compare.

Only the public calls are used, so the next format is asked the same questions.
"""

from __future__ import annotations

from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import fmq
from fmq.errors import FmqError

DATA = Path(__file__).parent / "data"
EXPECTED = "expected.json"
SPELLED_BYTES_MAX = 160

Seen = dict[str, Any]


def seen(engine: fmq.Engine | fmq.ReadOnlyEngine, expected: Seen) -> Seen:
    """Everything that can be seen of the transactions and groups that `expected` names, and of
    all queues and undecided transactions that there are.
    """
    found: Seen = {
        "queues": {f"{info.topic}/{info.queue}": queue(engine, info) for info in engine.queues()},
        "undecided": [on_disk(each) for each in engine.undecided()],
        "outcomes": {tx_id: outcome(engine, tx_id) for tx_id in expected["outcomes"]},
    }
    if isinstance(engine, fmq.Engine):
        found["not acked"] = {group: left(engine, group) for group in expected["not acked"]}
    return found


def queue(engine: fmq.Engine | fmq.ReadOnlyEngine, info: fmq.QueueInfo) -> Seen:
    """Every message of a queue with every field, and its first and next offsets."""
    messages = engine.read(info.topic, queue=info.queue, offset=info.first, limit=100_000)
    return {
        "first": info.first,
        "next": info.next,
        "messages": [
            {
                "offset": message.offset,
                "position": message.position,
                "time": str(message.time),
                "tx_id": message.tx_id,
                "producer": message.producer,
                "key": message.key,
                "tag": message.tag,
                "headers": dict(message.headers or {}),
                "body": as_text(message.body),
            }
            for message in messages
        ],
    }


def outcome(engine: fmq.Engine | fmq.ReadOnlyEngine, tx_id: str) -> Any:
    """All fields of an outcome; of one that cannot be had, the name of the error."""
    try:
        said = plain(engine.outcome(tx_id))
    except FmqError as error:
        return type(error).__name__
    if not said["asked"]:
        del said["asked"]  # it came later than the first directories, in bytes that are 0 there
    return said


def left(engine: fmq.Engine, group: str) -> dict[str, list[int]]:
    """For each queue, the offsets that the group gets when it asks now."""
    topics = sorted({info.topic for info in engine.queues()})
    found: dict[str, list[int]] = {}
    with engine.consumer(topics, group=group) as consumer:
        while deliveries := consumer.poll(limit=1000):
            for each in deliveries:
                found.setdefault(f"{each.topic}/{each.queue}", []).append(each.offset)
    return {place: sorted(offsets) for place, offsets in sorted(found.items())}


def on_disk(undecided: fmq.UndecidedTransaction) -> dict[str, Any]:
    """What the directory says of it: how asking stands lives in memory."""
    said: dict[str, Any] = plain(undecided)
    return {name: said[name] for name in said if name not in ("answers", "parked")}


def plain(what: Any) -> Any:
    """A result of the engine, or a part of one, as JSON has it."""
    if hasattr(what, "_asdict"):
        return {name: plain(each) for name, each in what._asdict().items()}
    if isinstance(what, (list, tuple)):
        return [plain(each) for each in what]
    if isinstance(what, datetime):
        return str(what)
    if hasattr(type(what), "__slots__") and not isinstance(what, (str, int, float, type(None))):
        return {name: plain(getattr(what, name)) for name in type(what).__slots__}
    return what


def as_text(body: Any) -> str:
    """A body: itself if it is short and printable, in hexadecimal, or by its checksum."""
    data = bytes(body)
    if len(data) > SPELLED_BYTES_MAX:
        return f"{len(data)} bytes, sha256 {sha256(data).hexdigest()}"
    if data.isascii() and (not data or data.decode().isprintable()):
        return data.decode()
    return "hex " + data.hex()
