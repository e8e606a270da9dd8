"""What calls cost in steps, and what they do while they hold the engine's lock.

A step is a call or a return that Python's profiler sees: the same number in each run, on any
machine. Whatever is done under the lock, every other thread waits for.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from types import FrameType
from typing import Any

import pytest

import fmq
from fmq.testing import CrashDisk, FakeClock
from fmq.testing.inside import has_lock


def steps(call: Callable[[], object], counts: Callable[[], bool] = lambda: True) -> int:
    """Return how many steps `call` takes while `counts` is true, without the collector."""
    found = 0

    def step(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal found
        found += counts()

    gc.collect()
    gc.disable()  # what it collects, and what is called for that, would be counted
    sys.setprofile(step)
    try:
        call()
    finally:
        sys.setprofile(None)
        gc.enable()
    return found


def steps_under_lock(engine: fmq.Engine, call: Callable[[], object]) -> int:
    """Return how many steps `call` takes under the engine's lock. No other thread may use it."""
    return steps(call, lambda: has_lock(engine))


@contextmanager
def opened(**options: Any) -> Iterator[fmq.Engine]:
    """An engine with no threads of its own."""
    with fmq.open(
        "d", fmq.Options(**options), disk=CrashDisk(), clock=FakeClock(), background=False
    ) as engine:
        yield engine


def with_topics(count: int) -> fmq.Engine:
    engine = fmq.open("d", disk=CrashDisk(), clock=FakeClock(), background=False)
    with engine.transaction() as tx:
        for number in range(count):
            tx.send(f"t{number}", b"")
    return engine


def test_close_visits_only_topics_with_a_waiting_reader() -> None:
    """Visiting all topics took time in proportion to their square."""
    woken = []
    for count in (500, 1000):
        engine = with_topics(count)
        names: list[str] = []

        def note(frame: FrameType, event: str, argument: Any, names: list[str] = names) -> None:
            ours = "/fmq/" in frame.f_code.co_filename  # not a WeakSet that loses a dead object
            if ours and event == "c_call" and argument.__name__ == "discard":
                names.append(frame.f_code.co_name)

        sys.setprofile(note)
        try:
            engine.close()
        finally:
            sys.setprofile(None)
        woken.append(len(names))
    assert woken[0] == woken[1], f"{woken} topics were taken off the list of those to be woken"


def test_a_close_takes_steps_in_proportion_to_the_topics() -> None:
    few, more, most = (steps(with_topics(count).close) for count in (400, 800, 1600))
    assert most - more < 2.5 * (more - few)


def prepared(engine: fmq.Engine, count: int) -> None:
    for number in range(count):
        tx = engine.transaction(tx_id=f"T{number}", producer="shop")
        tx.send("t", b"")
        tx.prepare()


def test_a_list_of_the_undecided_is_made_outside_the_lock() -> None:
    """Under the lock nothing is done for each transaction, however many there are."""
    found = []
    for count in (10, 200):
        with opened() as engine:
            prepared(engine, count)
            assert len(engine.undecided()) == count
            prepared_more = engine.transaction(tx_id="last")
            prepared_more.send("t", b"")
            prepared_more.prepare()
            found.append(steps_under_lock(engine, engine.undecided))
            assert [each.tx_id for each in engine.undecided()] == [
                *(f"T{number}" for number in range(count)),
                "last",
            ]
    assert found[0] == found[1], f"{found} steps under the lock"


def test_the_first_list_of_the_undecided_is_made_outside_the_lock() -> None:
    """No call has asked about any of them yet."""
    found = []
    for count in (10, 200):
        with opened() as engine:
            prepared(engine, count)
            found.append(steps_under_lock(engine, engine.undecided))
    assert found[0] == found[1], f"{found} steps under the lock"


SHOWS: dict[str, Callable[[fmq.Engine], object]] = {
    "stats": lambda engine: engine.stats(),
    "queues": lambda engine: engine.queues(),
    "queues of a topic": lambda engine: engine.queues("t"),
    "outcome": lambda engine: engine.outcome("T"),
}


@pytest.mark.parametrize("what", SHOWS)
def test_stats_are_counted_outside_the_lock(what: str) -> None:
    """This holds for any number of queues and of decided transactions."""
    found = []
    for count in (8, 400):
        with opened(topic_queues={"t": count}) as engine:
            tx = engine.transaction(tx_id="T")
            for queue in range(count):
                tx.send("t", b"", queue=queue)
            tx.commit()
            SHOWS[what](engine)
            found.append(steps_under_lock(engine, lambda engine=engine: SHOWS[what](engine)))  # type: ignore[misc]
    assert found[0] == found[1], f"{found} steps under the lock"


def test_groups_locks_the_engine_for_one_queue_at_a_time() -> None:
    """Between two queues other threads can have the lock."""
    longest = []
    for count in (8, 400):
        with opened(topic_queues={"t": count}) as engine:
            with engine.consumer("t", group="g") as consumer:
                for queue in range(count):
                    engine.send("t", b"", queue=queue)
                    consumer.poll(limit=1)[0].ack()
            held = [0]

            def count_held(engine: fmq.Engine = engine, held: list[int] = held) -> bool:
                if has_lock(engine):
                    held[-1] += 1
                elif held[-1]:
                    held.append(0)
                return True

            steps(lambda engine=engine: engine.groups("g"), count_held)  # type: ignore[misc]
            longest.append(max(held))
    assert longest[0] == longest[1], f"{longest} steps under the lock, one after the other"


# --- polls ----------------------------------------------------------------------------------------


def steps_of_a_poll(queues: int, busy: int, timeout: float = 0.0) -> int:
    """Return how many steps an idle poll takes on a topic of so many queues, `busy` of them
    delivered.
    """
    with opened(topic_queues={"t": queues}) as engine, engine.consumer("t", group="g") as consumer:
        for queue in range(queues):
            engine.send("t", b"", queue=queue)
        for _ in range(queues - busy):
            consumer.poll(limit=1)[0].ack()
        assert len([consumer.poll(limit=1) for _ in range(busy)]) == busy
        assert consumer.poll(timeout=timeout) == []  # what it finds idle it looks at this once
        return steps(lambda: consumer.poll(timeout=timeout))


@pytest.mark.parametrize("timeout", [0.0, 1.0])
@pytest.mark.parametrize("busy", [0, 1, 8])
def test_an_idle_poll_visits_no_queue_that_it_found_idle(busy: int, timeout: float) -> None:
    """This holds for any number of queues, also if consumers hold messages of some."""
    few, many = (steps_of_a_poll(queues, busy, timeout) for queues in (8, 512))
    assert few == many, f"{few} steps with 8 queues and {many} with 512"


def test_a_message_in_any_queue_is_delivered_after_empty_polls() -> None:
    """Each group gets it, whether it had polled before or not."""
    with (
        opened(topic_queues={"t": 64}) as engine,
        engine.consumer("t", group="g") as one,
        engine.consumer("t", group="h") as other,
    ):
        engine.send("t", b"", queue=0)
        for consumer in (one, other):
            consumer.poll()[0].ack()
            assert consumer.poll() == []
        for queue in (63, 0, 17):
            engine.send("t", b"sent", queue=queue)
            tx = engine.transaction(tx_id=f"T{queue}")
            tx.send("t", b"x" * 5000, queue=queue)
            tx.prepare()
            tx.commit()
            for consumer in (one, other):
                assert [each.queue for each in consumer.poll()] == [queue, queue]
                assert consumer.poll() == []


@pytest.mark.parametrize("seed", range(20))
def test_unacked_messages_of_each_queue_are_redelivered(seed: int) -> None:
    """Send, release, let leases end and roll transactions back, in any order."""
    random, clock = Random(seed), FakeClock()
    options = fmq.Options(topic_queues={"t": 16, "u": 3})
    with fmq.open("d", options, disk=CrashDisk(), clock=clock, background=False) as engine:
        sent, acked = 0, 0
        consumers = [engine.consumer(("t", "u"), group="g", lease_seconds=10) for _ in range(3)]
        held: list[Any] = []
        for _ in range(300):
            action = random.randrange(6)
            if action == 0:
                topic = random.choice("tu")
                engine.send(topic, b"", queue=random.randrange(16 if topic == "t" else 3))
                sent += 1
            elif action == 1:
                held += random.choice(consumers).poll(limit=random.randrange(1, 4))
            elif action == 2 and held:
                held.pop(random.randrange(len(held))).ack()
                acked += 1
            elif action == 3 and held:
                held.pop(random.randrange(len(held))).release()
            elif action == 4 and held:
                tx = engine.transaction()
                tx.ack(held[0])
                if random.random() < 0.5:
                    tx.prepare()
                tx.rollback()
                held.pop(0)
            elif action == 5 and random.random() < 0.2:
                clock.advance(11)
                held.clear()
        clock.advance(11)
        last = engine.consumer(("t", "u"), group="g", lease_seconds=1e6)
        found = 0
        while deliveries := last.poll(timeout=600):  # tried before: it may wait
            found += len(deliveries)
        assert found == sent - acked, f"seed {seed}"
