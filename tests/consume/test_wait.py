"""engine.wait: it returns the queues that have more, and waits for the first of them."""

from __future__ import annotations

from datetime import datetime
from threading import Thread
from typing import Any

import pytest

import fmq
from fmq import Engine
from fmq.testing import CrashDisk, FakeClock
from fmq.testing.inside import inside


def test_queues_with_messages_are_returned_with_their_ends(engine: Engine) -> None:
    engine.create_topic("t", queues=3)
    engine.send_many("t", [b"x"] * 4, queue=1)
    engine.send("u", b"x")
    before = {("t", 0): 0, ("t", 1): 3, ("u", 0): 1, ("none", 0): 0}
    assert engine.wait(before, timeout=0) == {("t", 1): 4}
    assert engine.wait({("t", 1): 0, ("u", 0): 0}, timeout=0) == {("t", 1): 4, ("u", 0): 1}
    assert engine.wait({}, timeout=0) == {}


def test_wait_returns_nothing_when_its_time_is_up(engine: Engine, clock: FakeClock) -> None:
    engine.send("t", b"x")
    before = clock.monotonic()
    assert engine.wait({("t", 0): 1, ("none", 0): 0}, timeout=7) == {}
    assert clock.monotonic() - before == pytest.approx(7)
    assert engine.wait({("t", 0): 0, ("none", 0): 0}, timeout=7) == {("t", 0): 1}
    assert clock.monotonic() - before == pytest.approx(7)


@pytest.mark.parametrize("topic", ["t", "new"])
def test_a_message_of_any_of_the_queues_ends_the_wait(topic: str) -> None:
    """Also the first message of a topic that did not exist."""
    clock = FakeClock()
    with fmq.open("data", disk=CrashDisk(), clock=clock) as engine:
        engine.create_topic("t", queues=2)
        found: list[dict[Any, int]] = []
        places = {("t", 0): 0, ("t", 1): 0, ("new", 0): 0}
        thread = Thread(target=lambda: found.append(engine.wait(places, timeout=60)))
        thread.start()
        clock.until(lambda: inside(engine).ledger.awaited)
        engine.send(topic, b"x", queue=0)
        thread.join(60)
        assert found == [{(topic, 0): 1}]


@pytest.mark.parametrize(
    ("places", "error"),
    [
        ([("t", 0)], TypeError),
        ({"t": 0}, TypeError),
        ({("t", 0, 0): 0}, TypeError),
        ({("t", "0"): 0}, TypeError),
        ({(7, 0): 0}, TypeError),
        ({("t", 0): datetime(2026, 1, 1)}, TypeError),  # noqa: DTZ001
        ({("t", 0): -1}, fmq.BadOption),
        ({("t", -1): 0}, fmq.BadOption),
        ({("t", 1): 0}, fmq.BadName),
    ],
)
def test_odd_places_are_refused(engine: Engine, places: Any, error: type[Exception]) -> None:
    engine.send("t", b"x")
    with pytest.raises(error):
        engine.wait(places, timeout=0)


def test_a_closed_engine_refuses_to_wait(engine: Engine) -> None:
    engine.close()
    with pytest.raises(fmq.Closed):
        engine.wait({("t", 0): 0}, timeout=1)
