"""Bodies that a transaction takes all at once count as those that it takes one by one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import fmq

OPTIONS = fmq.Options(segment_bytes=32 << 10, topic_queues={"one": 1, "three": 3})


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[fmq.Engine]:
    with fmq.open(tmp_path / "shop", OPTIONS) as engine:
        yield engine


@pytest.mark.parametrize(("topic", "queue"), [("one", None), ("three", None), ("three", 2)])
def test_as_many_fit_as_one_by_one(engine: fmq.Engine, topic: str, queue: int | None) -> None:
    count, single = 0, engine.transaction()
    with pytest.raises(fmq.errors.TooLarge):
        while True:
            single.send(topic, b"x" * 100, queue=queue)
            count += 1
    assert count > 50
    many = engine.transaction()
    with pytest.raises(fmq.errors.TooLarge):
        many.send_many(topic, [b"x" * 100] * (count + 1), queue=queue)
    many.send_many(topic, [b"x" * 100] * (count - 1), queue=queue)
    many.send_many(topic, [bytearray(b"x" * 100)], queue=queue)
    with pytest.raises(fmq.errors.TooLarge):
        many.send_many(topic, [b"x" * 100], queue=queue)
    assert sum(receipt.count for receipt in many.commit()) == count


def test_one_body_too_large_refuses_all(engine: fmq.Engine) -> None:
    tx = engine.transaction()
    with pytest.raises(fmq.errors.TooLarge):
        tx.send_many("one", [b"x", b"y" * 40_000])
    tx.send_many("one", [b"z"])
    tx.commit()
    assert [message.body for message in engine.read("one")] == [b"z"]
