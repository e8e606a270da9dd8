"""A signal handler drains the consumer whose loop it interrupts, wherever that is."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import fmq

SIGNAL = signal.SIGUSR1
pytestmark = pytest.mark.skipif(
    threading.current_thread() is not threading.main_thread(), reason="handlers run in the main one"
)


@pytest.fixture(params=["open", "connect"])
def engine(request: Any, tmp_path: Path) -> Iterator[Any]:
    """An engine of this process, or a client of it over a socket."""
    with fmq.open(tmp_path / "d", fmq.Options(segment_bytes=1 << 20)) as engine:
        if request.param == "open":
            yield engine
            return
        engine.serve()
        with fmq.connect(tmp_path / "d", start=False) as client:
            yield client


@pytest.fixture
def on_signal() -> Iterator[Callable[[Callable[[], Any]], None]]:
    """Return a function that has the signal call what it is given."""
    before = signal.getsignal(SIGNAL)

    def register(call: Callable[[], Any]) -> None:
        signal.signal(SIGNAL, lambda *_: call())

    yield register
    signal.signal(SIGNAL, before)


def loop(consumer: Any) -> None:
    for delivery in consumer:
        delivery.ack()


def batches(consumer: Any) -> None:
    for batch in consumer.batches(max_wait=0.0):
        batch.ack()


def polls(consumer: Any) -> None:
    while deliveries := consumer.poll(timeout=60):
        for delivery in deliveries:
            delivery.ack()


def run(consumer: Any) -> None:
    consumer.run(lambda delivery: None)


@pytest.mark.parametrize("handle", [loop, batches, polls, run])
def test_a_drain_in_a_signal_handler_ends_a_waiting_consumer(
    engine: Any, on_signal: Any, handle: Callable[[Any], None]
) -> None:
    """Signals arrive until the consumer has ended: in a poll, in an ack, or in an earlier drain."""
    engine.send_many("t", [b"%d" % number for number in range(20)])
    ended, errors = threading.Event(), list[BaseException]()
    main = threading.get_ident()

    def interrupt() -> None:
        while not ended.wait(0.001):
            signal.pthread_kill(main, SIGNAL)

    with engine.consumer("t", group="g") as consumer:

        def drain() -> None:
            try:
                consumer.drain(timeout=0.0 if handle is polls else 60.0)
            except BaseException as error:
                errors.append(error)

        on_signal(drain)
        sender = threading.Thread(target=interrupt)
        sender.start()
        try:
            handle(consumer)
        finally:
            ended.set()
            sender.join()
    assert errors == []


def test_a_drain_in_the_body_of_a_loop_does_not_wait_for_its_own_message(engine: Any) -> None:
    engine.send_many("t", [b"1", b"2"])
    with engine.consumer("t", group="g") as consumer:
        for delivery in consumer:
            assert not consumer.drain(), "it is in hand"
            delivery.ack()
        assert consumer.drain(timeout=0)
        assert consumer.poll() == []


def test_run_calls_no_handler_after_one_that_has_drained(engine: Any) -> None:
    engine.send_many("t", [b"1", b"2"])
    handled = []
    with engine.consumer("t", group="g") as consumer:

        def handle(delivery: Any) -> None:
            handled.append(delivery.body)
            assert not consumer.drain(), "it is in hand"

        consumer.run(handle)
    assert handled == [b"1"]
