"""A signal handler that calls the engine, in the middle of another call of its thread: no hang.

Each act is done on a fresh disk in memory, and the handler's call is made at some line of it. Then
the act goes on, and what it says is true. Where a handler's call is refused, it says so.
"""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

import pytest

import fmq
import fmq.infos  # which an engine imports when it is first asked
import fmq.nested
import fmq.stats
from fmq.errors import Closed, EngineFailed, Nested
from fmq.testing import CrashDisk, FakeClock
from fmq.tx.collecting import Phase
from tests.interrupts import Interrupt, in_thread
from tests.small import bodies, check, opened
from tests.test_process import run

LINES_MAX = 3000
TRIALS_MAX = 25
LINES_OF_DROPPED_MAX = 60
SEED = int(os.environ.get("FMQ_SEED", "11"))

Act = Any  # a function of an engine


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


def outcome(engine: fmq.Engine) -> Any:
    return engine.outcome("before")


def checkpoint(engine: fmq.Engine) -> Any:
    return engine.checkpoint()


def close(engine: fmq.Engine) -> Any:
    return engine.close()


ACTS = [send, commit, poll_and_ack, read, outcome, checkpoint, close]
CALLS: list[Act] = [close, fmq.Engine.sync, checkpoint, fmq.Engine.stats]


def begin(disk: CrashDisk) -> fmq.Engine:
    engine = opened(disk, FakeClock(), checkpoint_bytes=1500)
    engine.send_many("in", [b"%d" % i for i in range(3)])
    with engine.transaction(tx_id="before") as tx:
        tx.send("in", b"before")
    while engine.stats().position < 3000:
        engine.send("in", b"i" * 300)
    return engine


@pytest.mark.parametrize("call", CALLS, ids=lambda call: str(call.__name__))
@pytest.mark.parametrize("act", ACTS, ids=lambda act: str(act.__name__))
def test_a_handlers_call_at_any_line_of_another_call_never_hangs(
    act: Act, call: Act, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is served, or refused with nothing done; and the call that it met goes on."""
    monkeypatch.setattr(fmq.nested, "PATIENCE_SECONDS", 0.005)  # nobody else has a lock here
    for _ in range(2):  # the first one fills caches
        counted = Handler(LINES_MAX, lambda: None)
        with begin(CrashDisk()) as engine:
            counted.run(lambda: act(engine))
    chosen = Random(f"{SEED} {act.__name__} {call.__name__}").sample(
        range(counted.count), min(TRIALS_MAX, counted.count)
    )
    refused = served = 0
    for at in sorted(chosen):
        disk = CrashDisk()
        engine = begin(disk)
        handler = Handler(at, lambda engine=engine: call(engine))  # type: ignore[misc]
        done = True
        try:
            in_thread(lambda: handler.run(lambda: act(engine)), f"line {at}")  # noqa: B023
        except (Closed, EngineFailed):
            done = False  # the handler has closed it before the act was begun
            assert call is close, handler.met
        except BaseException as error:
            error.add_note(f"FMQ_SEED={SEED}, line {at}: {handler.met}")
            raise
        assert handler.error is None or isinstance(handler.error, (Nested, Closed)), handler.met
        # Some ways are shorter than the one that was counted.
        refused += handler.called and isinstance(handler.error, Nested)
        served += handler.called and handler.error is None
        in_thread(engine.close, f"close after {handler.met}")
        check(disk)
        if done and act in (send, commit):
            with opened(disk) as engine:
                assert bodies(engine, "t")[0][:3] == b"act", handler.met
    assert refused + served > 0, "nothing was tried"


def test_a_refusal_that_leaves_the_handler_is_no_refusal_of_the_call_that_it_met(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Half of what that had planned may stand in memory by then, or its bytes on the disk."""
    monkeypatch.setattr(fmq.nested, "PATIENCE_SECONDS", 0.005)
    for at in sorted(Random(SEED).sample(range(200), TRIALS_MAX)):
        disk = CrashDisk()
        engine = begin(disk)
        tx = engine.transaction(tx_id="U")
        tx.send("t", b"act")
        try:
            Raising(at, engine).run(tx.commit)
            done = True
        except (Nested, EngineFailed, Closed):
            done = False
        if not done:  # never taken for a refusal of the commit once that is on its way
            failed = engine.stats().failure is not None
            assert tx.phase is Phase.OPEN or failed or tx.outcome().state == "committed"
        in_thread(engine.close, "close")
        check(disk)
        if done:
            with opened(disk) as engine:
                assert bodies(engine, "t") == [b"act"]


Stream = Iterator[object]


class Dropped:
    """A program's object that holds a generator which holds it, and nobody else does: garbage."""

    def __init__(self, stream: Callable[[Dropped], Stream]) -> None:
        self.stream = stream(self)
        next(self.stream)


def closes(engine: fmq.Engine, consumer: fmq.Consumer) -> None:
    def stream(dropped: Dropped) -> Stream:
        with engine.consumer("in", group="g") as own:
            yield dropped, own.poll(limit=2)

    Dropped(stream)


def rolls_back(engine: fmq.Engine, consumer: fmq.Consumer) -> None:
    def stream(dropped: Dropped) -> Stream:
        with engine.transaction() as tx:
            for delivery in consumer.poll(limit=2):
                tx.ack(delivery)
            yield dropped

    Dropped(stream)


def releases(engine: fmq.Engine, consumer: fmq.Consumer) -> None:
    def stream(dropped: Dropped) -> Stream:
        (delivery,) = consumer.poll(limit=1)
        try:
            yield dropped
        finally:
            delivery.release()

    Dropped(stream)


def everything(engine: fmq.Engine) -> list[int]:
    """The offsets of what can be had."""
    found = []
    consumer = engine.consumer("in", group="g")
    while deliveries := consumer.poll():
        found += [delivery.offset for delivery in deliveries]
    return sorted(found)


def polls(engine: fmq.Engine) -> Any:
    with engine.consumer("in", group="g") as other:
        return other.poll(limit=1)


@pytest.mark.parametrize("act", [polls, send, fmq.Engine.groups], ids=lambda act: act.__name__)
@pytest.mark.parametrize("drop", [closes, rolls_back, releases], ids=lambda drop: drop.__name__)
def test_what_the_garbage_collector_ends_inside_of_a_call_gives_back_and_never_hangs(
    drop: Callable[[fmq.Engine, fmq.Consumer], None], act: Act
) -> None:
    """It comes wherever something is made, also where the call has the engine's lock."""
    every = range(4)
    counted = Handler(LINES_MAX, lambda: None)
    gc.disable()
    try:
        for _ in range(2):  # the first one fills caches
            with begin(CrashDisk()) as engine:
                counted = Handler(LINES_MAX, lambda: None)
                counted.run(lambda: act(engine))
        for at in range(0, counted.count, -(-counted.count // LINES_OF_DROPPED_MAX)):
            clock = FakeClock()
            engine = opened(CrashDisk(), clock)
            engine.send_many("in", [b"%d" % i for i in every])
            consumer = engine.consumer("in", group="g")
            gc.collect(0)
            drop(engine, consumer)
            handler = Handler(at, lambda: gc.collect(0))
            in_thread(lambda: handler.run(lambda: act(engine)), f"line {at}")  # noqa: B023
            gc.collect(0)  # some ways are shorter than the one that was counted
            in_thread(consumer.close, f"close after {handler.met}")
            clock.advance(31)  # behind every lease
            got = in_thread(lambda: everything(engine), f"poll after {handler.met}")  # noqa: B023
            assert got == [*every], handler.met
            in_thread(engine.close, f"close after {handler.met}")
    finally:
        gc.enable()


class Interrupting(FakeClock):
    """Lets a handler run where a plan asks for the time: the thread has the engine's lock then."""

    handler: Callable[[], object] | None = None

    def time_us(self) -> int:
        handler, self.handler = self.handler, None
        if handler is not None:
            handler()
        return super().time_us()


def writing(engine: fmq.Engine) -> dict[str, Callable[[], Any]]:
    """What a handler may want to write, ready to be called."""
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
        "commit": open_one.commit,
        "commit prepared": prepared.commit,
        "decide": lambda: engine.decide("B", "commit"),
        "roll back": lambda: engine.decide("C", "rollback"),
    }


@pytest.mark.parametrize("moment", ["plan", "write"])
@pytest.mark.parametrize(
    "call", ["send", "ack", "commit", "commit prepared", "decide", "roll back"]
)
def test_what_a_handler_writes_while_its_thread_plans_or_writes_is_refused(
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


def test_an_interrupt_while_a_lock_is_looked_at_leaves_it_as_it_was() -> None:
    lock = threading.Lock()
    for at in range(20):
        with suppress(KeyboardInterrupt):
            Interrupt(at).run(lambda: fmq.nested.are_free([lock]))
        assert not lock.locked()


SIGNALLED = """
import signal, sys, faulthandler, fmq
faulthandler.dump_traceback_later(20, exit=True)
fmq.nested.PATIENCE_SECONDS = 0.3
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
def test_a_real_handler_that_closes_the_engine_ends_the_program(tmp_path: Path, mode: str) -> None:
    assert run(SIGNALLED, tmp_path / "d", mode) == "ok True"


def test_a_handler_may_close_an_engine_while_its_thread_waits_for_messages(tmp_path: Path) -> None:
    with fmq.open(tmp_path / "d") as engine, engine.consumer("t", group="g") as consumer:
        before = signal.signal(signal.SIGALRM, lambda *_: engine.close())
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            with pytest.raises(Closed):
                consumer.poll(timeout=30)
        finally:
            signal.signal(signal.SIGALRM, before)
