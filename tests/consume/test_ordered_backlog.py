"""What a poll of an ordered group costs does not grow with the backlog, or with its keys.

Method: count the calls of Python functions, which no other load on the machine changes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from fmq import Engine
from tests.small import CrashDisk, opened

BACKLOG, HANDLED = 3000, 40
KEYS: dict[str, Callable[[int], str | None]] = {
    "none": lambda number: None,
    "one": lambda number: "a",
    "ten": lambda number: f"k{number % 10}",
    "all different": lambda number: f"k{number}",
}


def calls_of(work: Callable[[], object]) -> int:
    """The calls of Python functions while `work` runs."""
    count = 0

    def profile(frame: object, event: str, arg: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def handled(engine: Engine, **how: Any) -> int:
    """The calls for each of some messages that are handled one by one, after the first."""
    with engine.consumer("t", **how) as consumer:

        def handle(count: int) -> None:
            for _ in range(count):
                (delivery,) = consumer.poll(limit=1)
                delivery.ack()

        handle(1)
        return calls_of(lambda: handle(HANDLED)) // HANDLED


@pytest.mark.parametrize("keys", KEYS)
def test_an_ordered_poll_costs_about_as_much_as_an_unordered_one(keys: str) -> None:
    with opened(CrashDisk(), segment_bytes=1 << 20) as engine:
        for number in range(BACKLOG):
            engine.send("t", b"%d" % number, key=KEYS[keys](number))
        unordered = handled(engine, group="u")
        assert handled(engine, group="o", ordered=True) < 2 * unordered


@pytest.mark.parametrize("keys", ["none", "one"])
def test_a_key_being_handled_does_not_make_polls_search_its_backlog_again(keys: str) -> None:
    with opened(CrashDisk(), segment_bytes=1 << 20) as engine:
        for number in range(BACKLOG):
            engine.send("t", b"%d" % number, key=KEYS[keys](number))
        with engine.consumer("t", group="g", ordered=True) as consumer:
            (first,) = consumer.poll(limit=1)
            assert consumer.poll() == []  # which looks at all
            engine.send("t", b"other", key="other")
            other: list[Any] = []
            assert calls_of(lambda: other.extend(consumer.poll(limit=1))) < 500
            assert [each.body for each in other] == [b"other"]
            assert calls_of(first.ack) < 500
