"""A topic is deleted and made again, with fewer queues or more, while members own its queues."""

from __future__ import annotations

from typing import Any

import pytest

from fmq import Engine


def bodies(consumer: Any) -> list[bytes]:
    return [each.body for each in consumer.poll()]


def again(engine: Engine, queues: int, body: bytes, **more: Any) -> None:
    engine.topic("t").delete()
    engine.create_topic("t", queues=queues)
    engine.send("t", body, queue=queues - 1, **more)


@pytest.mark.parametrize("priority", [None, 3])
@pytest.mark.parametrize("strategy", [None, "average"])
def test_members_get_what_is_sent_to_the_new_topic(
    engine: Engine, strategy: Any, priority: int | None
) -> None:
    engine.create_topic("t", queues=4)
    engine.send("t", b"old", queue=3, priority=priority)
    with engine.consumer("t", group="g", strategy=strategy) as consumer:
        assert bodies(consumer) == [b"old"]
        for number, queues in enumerate((1, 6, 2)):
            again(engine, queues, b"%d" % number, priority=priority)
            assert bodies(consumer) == [b"%d" % number]


@pytest.mark.parametrize("priority", [None, 3])
def test_a_member_that_leaves_a_topic_with_fewer_queues_leaves_nothing_behind(
    engine: Engine, priority: int | None
) -> None:
    engine.create_topic("t", queues=4)
    engine.send("t", b"old", queue=3, priority=priority)
    with engine.consumer("t", group="g", strategy="average") as consumer:
        assert bodies(consumer) == [b"old"]
        again(engine, 1, b"new", priority=priority)
    with engine.consumer("t", group="g") as consumer:
        assert bodies(consumer) == [b"new"]
