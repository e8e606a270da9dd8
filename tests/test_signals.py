"""Calls that a signal handler makes inside of another call of its thread, and what the garbage
collector drops there: nothing hangs, and nothing is half done.

Each act runs on a fresh disk in memory. The handler's call is made at some line of it.
"""

from __future__ import annotations

import gc
import signal
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import fmq
from fmq.errors import Closed, EngineFailed, Nested
from fmq.testing import CrashDisk, FakeClock
from fmq.tx.commands.buffer import Phase
from tests.budget import SEED, draw
from tests.interrupts import Interrupt, in_thread
from tests.small import bodies, check, opened
from tests.test_process import run

LINES_MAX = 10_000
TRIALS_MAX = 3
LINES_OF_DROPPED_MAX = 60

Act = Callable[[fmq.Engine], Any]


class Handler(Interrupt):
    """At line number `at`, a handler that makes the call `work` and keeps what that raises."""

    def __init__(self, at: int, work: Callable[[], Any]) -> None:
        super().__init__(at)
        self._work = work
        self.error: BaseException | None = None
        self.called = False

    def reached(self, frame: FrameType) -> None:
        with suppress(KeyboardInterrupt):
            super().reached(frame)
        self.called = True
        try:
            self._work()
        except fmq.FmqError as error:
            self.error = error


class Raising(Interrupt):
    """At line number `at`, a handler that syncs, and does not catch what that raises."""

    def __init__(self, at: int, engine: fmq.Engine) -> None:
        super().__init__(at)
        self._engine = engine

    def reached(self, frame: FrameType) -> None:
        self._engine.sync()


def send(engine: fmq.Engine) -> Any:
    return engine.send("t", b"act" + b"x" * 900)


def commit(engine: fmq.Engine) -> Any:
    with engine.transaction(tx_id="T") as tx:
        tx.send("t", b"act")
        tx.prepare()


def poll_and_ack(engine: fmq.Engine) -> Any:
    with engine.consumer("in", group="g") as consumer:
        consumer.poll()[0].ack()


def read(engine: fmq.Engine) -> Any:
    return engine.read("in")


def polls(engine: fmq.Engine) -> Any:
    with engine.consumer("in", group="g") as other:
        return other.poll(limit=1)


ACTS: list[Act] = [send, commit, poll_and_ack, fmq.Engine.checkpoint, fmq.Engine.close]
CALLS: list[Act] = [
    fmq.Engine.close,
    fmq.Engine.sync,
    fmq.Engine.checkpoint,
    fmq.Engine.stats,
    fmq.Engine.undecided,
    read,
    polls,
]


def begin(disk: CrashDisk) -> fmq.Engine:
    engine = opened(disk, FakeClock(), checkpoint_bytes=1500)
    engine.send_many("in", [b"%d" % i for i in range(3)])
    while engine.stats().position < 3000:
        engine.send("in", b"i" * 300)
    return engine


@cache
def lines_of(act: Act) -> int:
    """Return how many lines of fmq `act` runs, once caches are full."""
    for _ in range(2):
        counted = Interrupt(LINES_MAX)
        with begin(CrashDisk()) as engine:
            counted.run(lambda: act(engine))
    return counted.count


@pytest.mark.parametrize("call", CALLS, ids=lambda call: str(call.__name__))
@pytest.mark.parametrize("act", ACTS, ids=lambda act: str(act.__name__))
def test_a_call_of_a_signal_handler_is_served_or_refused(act: Act, call: Act) -> None:
    """It does not hang at any line of the interrupted call, and that call goes on."""
    lines = lines_of(act)
    refused = served = 0
    for at in draw(range(lines), TRIALS_MAX, f"{act.__name__} {call.__name__}"):
        disk = CrashDisk()
        engine = begin(disk)
        handler = Handler(at, lambda engine=engine: call(engine))  # type: ignore[misc]
        done = True
        try:
            in_thread(lambda: handler.run(lambda: act(engine)), f"line {at}")  # noqa: B023
        except (Closed, EngineFailed):
            done = False  # the handler has closed it before the act was begun
            assert call is fmq.Engine.close, handler.met
        except BaseException as error:
            error.add_note(f"FMQ_SEED={SEED}, line {at}: {handler.met}")
            raise
        assert handler.error is None or isinstance(handler.error, (Nested, Closed)), handler.met
        refused += handler.called and isinstance(handler.error, (Nested, Closed))
        served += handler.called and handler.error is None
        in_thread(engine.close, f"close after {handler.met}")
        check(disk)
        if done and act in (send, commit):
            with opened(disk) as engine:
                assert bodies(engine, "t")[0][:3] == b"act", handler.met
    assert refused + served > 0, "nothing was tried"


def test_nested_raised_through_a_call_does_not_leave_half_of_it() -> None:
    """Half of the plan may be in memory then, or its bytes on the disk."""
    for at in draw(range(200), TRIALS_MAX):
        disk = CrashDisk()
        engine = begin(disk)
        tx = engine.transaction(tx_id="U")
        tx.send("t", b"act")
        try:
            Raising(at, engine).run(tx.commit)
            done = True
        except (Nested, EngineFailed, Closed):
            done = False
            failed = engine.stats().failure is not None
            assert tx.phase is Phase.OPEN or failed or tx.outcome().state == "committed"
        in_thread(engine.close, "close")
        check(disk)
        if done:
            with opened(disk) as engine:
                assert bodies(engine, "t") == [b"act"]


class Interrupting(FakeClock):
    """Lets a handler run where a plan asks for the time: the thread has the engine's lock then."""

    handler: Callable[[], object] | None = None

    def time_us(self) -> int:
        handler, self.handler = self.handler, None
        if handler is not None:
            handler()
        return super().time_us()


def writing(engine: fmq.Engine) -> dict[str, Callable[[], Any]]:
    """Return what a handler may want to write, ready to be called."""
    consumer = engine.consumer("in", group="h")
    (delivery,) = consumer.poll(limit=1)
    for name in ("A", "B", "C"):
        tx = engine.transaction(tx_id=name)
        tx.send("u", b"by the handler")
        tx.prepare()
        if name == "A":
            prepared = tx
    open_one = engine.transaction()
    open_one.send("u", b"by the handler")
    return {
        "send": lambda: engine.send("u", b"by the handler"),
        "ack": delivery.ack,
        "release": delivery.release,
        "close a consumer": consumer.close,
        "commit": open_one.commit,
        "commit prepared": prepared.commit,
        "decide": lambda: engine.decide("B", "commit"),
        "roll back": lambda: engine.decide("C", "rollback"),
        "ask": lambda: engine.feedback.ask("", wait=0.0),
    }


WRITING = [
    "send", "ack", "release", "close a consumer", "commit", "commit prepared", "decide",
    "roll back", "ask",
]  # fmt: skip


@pytest.mark.parametrize("moment", ["plan", "write"])
@pytest.mark.parametrize("call", WRITING)
def test_a_write_in_a_handler_while_its_thread_plans_or_writes_is_refused(
    call: str, moment: str
) -> None:
    disk, clock = CrashDisk(), Interrupting()
    engine = opened(disk, clock)
    engine.send("in", b"0")
    work = writing(engine)[call]
    told: list[str] = []

    def handler(*_: object) -> None:
        disk.watch(None)
        try:
            work()
        except Nested:
            told.append("nested")

    if moment == "plan":
        clock.handler = handler
    else:
        disk.watch(handler)
    in_thread(lambda: engine.send("t", b"act"), f"{call} in a handler")
    assert told == ["nested"]
    assert bodies(engine, "t") == [b"act"]
    assert bodies(engine, "u") == []
    work()  # nothing was done, so it can be done now
    engine.close()
    check(disk)


class Dropped:
    """A program's object in a circle that nothing else refers to."""

    def __init__(self, *holds: object) -> None:
        self.holds = self, holds


def drop_a_consumer(engine: fmq.Engine, _: fmq.Consumer) -> None:
    consumer = engine.consumer("in", group="g")
    Dropped(consumer, consumer.poll(limit=2))


def drop_a_transaction(engine: fmq.Engine, consumer: fmq.Consumer) -> None:
    tx = engine.transaction()
    for delivery in consumer.poll(limit=2):
        tx.ack(delivery)
    Dropped(tx)


def everything(engine: fmq.Engine) -> list[int]:
    """Return the offsets of all messages that can be had."""
    found = []
    consumer = engine.consumer("in", group="g")
    while deliveries := consumer.poll():
        found += [delivery.offset for delivery in deliveries]
    return sorted(found)


@pytest.mark.parametrize("act", [polls, send, fmq.Engine.groups], ids=lambda act: act.__name__)
@pytest.mark.parametrize(
    "drop", [drop_a_consumer, drop_a_transaction], ids=lambda drop: drop.__name__
)
def test_a_delivery_dropped_by_the_garbage_collector_is_redelivered(
    drop: Callable[[fmq.Engine, fmq.Consumer], None], act: Act
) -> None:
    """The collector may run in any call, also while that has the engine's lock."""
    lines = lines_of(act)
    gc.disable()
    try:
        for at in range(0, lines, -(-lines // LINES_OF_DROPPED_MAX)):
            engine = opened(CrashDisk(), FakeClock())
            engine.send_many("in", [b"%d" % i for i in range(4)])
            consumer = engine.consumer("in", group="g")
            gc.collect(0)
            drop(engine, consumer)
            handler = Handler(at, lambda: gc.collect(0))
            in_thread(lambda: handler.run(lambda: act(engine)), f"line {at}")  # noqa: B023
            gc.collect(0)  # some ways are shorter than the one that was counted
            in_thread(consumer.close, f"close after {handler.met}")
            got = in_thread(lambda: everything(engine), f"poll after {handler.met}")  # noqa: B023
            assert got == [0, 1, 2, 3], handler.met
            in_thread(engine.close, f"close after {handler.met}")
    finally:
        gc.enable()


SIGNALLED = """
import signal, sys, faulthandler, fmq
faulthandler.dump_traceback_later(20, exit=True)
engine = fmq.open(sys.argv[1], fmq.Options(sync=sys.argv[2]))
told = []
def handler(number, frame):
    try:
        engine.close()
        told.append("closed")
    except fmq.errors.Nested:
        told.append("nested")
        signal.setitimer(signal.ITIMER_REAL, 0.003)
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.02)
try:
    while "closed" not in told and len(told) < 5:
        engine.send("t", b"x")
except fmq.errors.Closed:
    pass
signal.setitimer(signal.ITIMER_REAL, 0)
engine.close()
print("ok", len(told) > 0)
"""


@pytest.mark.parametrize("mode", ["always", "interval"])
def test_a_signal_handler_that_closes_the_engine_ends_the_program(
    tmp_path: Path, mode: str
) -> None:
    assert run(SIGNALLED, tmp_path / "d", mode) == "ok True"


def test_a_signal_handler_may_close_an_engine_during_a_poll(tmp_path: Path) -> None:
    with fmq.open(tmp_path / "d") as engine, engine.consumer("t", group="g") as consumer:
        before = signal.signal(signal.SIGALRM, lambda *_: engine.close())
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            with pytest.raises(Closed):
                consumer.poll(timeout=30)
        finally:
            signal.signal(signal.SIGALRM, before)
