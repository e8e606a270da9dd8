"""Many threads on one engine, on real files: offsets dense, receipts true, transactions whole."""

from __future__ import annotations

import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fmq
from fmq import Engine, Options, Receipt
from fmq.errors import Closed, EngineFailed
from fmq.testing import CrashDisk, FaultDisk
from tests.test_process import run

SECONDS = 0.5
OPTIONS: dict[str, Any] = {
    "segment_bytes": 256 * 1024,
    "checkpoint_bytes": 64 * 1024,
    "reference_bytes_min": 64,
    "topic_queues": {"t": 3, "u": 2},
}


def together(*works: Callable[[], object]) -> None:
    """Run all of them at once; the first exception of any is raised."""
    failures: list[BaseException] = []

    def run(work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "a thread hangs"
    if failures:
        raise failures[0]


class Work:
    """What eight threads do to one engine, and what they were promised."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.end = time.monotonic() + SECONDS
        self.sent: list[tuple[Receipt, list[bytes]]] = []
        self.whole: dict[str, list[Receipt]] = {}
        self.dropped: set[str] = set()
        self.consumed: list[tuple[int, int]] = []

    def going(self) -> bool:
        return time.monotonic() < self.end

    def send(self, name: str) -> None:
        number = 0
        while self.going():
            body = f"{name}-{number}".encode() * (1 + number % 20)
            self.sent.append((self.engine.send("t", body, key=str(number)), [body]))
            bodies = [b"%d" % i + body for i in range(number % 7 + 1)]
            (receipt,) = self.engine.send_many("t", bodies, queue=number % 3)
            self.sent.append((receipt, bodies))
            number += 1

    def transact(self, name: str) -> None:
        number = 0
        while self.going():
            tx = self.engine.transaction(tx_id=f"{name}-{number}")
            body = tx.tx_id.encode()
            tx.send("t", body, queue=number % 3)
            tx.send("u", body * 20, queue=number % 2)
            if number % 3:
                tx.prepare()
            if number % 5 == 4:
                tx.rollback()
                self.dropped.add(tx.tx_id)
            else:
                self.whole[tx.tx_id] = tx.commit()
            number += 1

    def consume(self) -> None:
        with self.engine.consumer("t", group="g") as consumer:
            while self.going():
                for delivery in consumer.poll(limit=20, timeout=0.05):
                    delivery.ack(sync=False)
                    self.consumed.append((delivery.queue, delivery.offset))

    def read(self) -> None:
        """A transaction is seen on both of its queues or on none, at any moment."""
        offset: dict[int, int] = defaultdict(int)
        while self.going():
            for queue in range(2):
                found = self.engine.read("u", queue=queue, offset=offset[queue], limit=50)
                for message in found:
                    assert message.tx_id is not None
                    assert message.body == message.tx_id.encode() * 20
                    number = int(message.tx_id.rpartition("-")[2])
                    beside = self.engine.read("t", queue=number % 3, limit=100000)
                    assert message.body[: len(message.tx_id)] in [each.body for each in beside]
                    break  # one of them: reading all of the topic each time is slow
                offset[queue] += len(found)

    def check(self, engine: Engine) -> None:
        found: dict[tuple[str, int], list[fmq.Message]] = {}
        for info in engine.queues():
            messages = engine.read(info.topic, queue=info.queue, limit=1_000_000)
            assert [message.offset for message in messages] == list(range(info.next))
            times = [message.time for message in messages if message.time]
            assert times == sorted(times)
            found[info.topic, info.queue] = messages
        for receipt, bodies in self.sent:
            run = found[receipt.topic, receipt.queue][receipt.offset :][: receipt.count]
            assert [message.body for message in run] == bodies
            assert {message.position for message in run} == {receipt.position}
        for tx_id, receipts in self.whole.items():
            assert len(receipts) == 2
            for receipt in receipts:
                message = found[receipt.topic, receipt.queue][receipt.offset]
                assert (message.tx_id, message.position) == (tx_id, receipt.position)
        seen = {message.tx_id for messages in found.values() for message in messages}
        assert not seen & self.dropped
        total = sum(map(len, found.values()))
        promised = sum(len(bodies) for _, bodies in self.sent) + 2 * len(self.whole)
        assert total == promised


@pytest.mark.parametrize("sync", ["always", "interval", "never"])
def test_sends_transactions_and_acks_of_eight_threads_are_kept(tmp_path: Path, sync: Any) -> None:
    with fmq.open(tmp_path / "d", Options(sync=sync, **OPTIONS)) as engine:
        work = Work(engine)
        work.sent.append((engine.send("t", b"first", queue=0), [b"first"]))
        together(
            *(lambda name=name: work.send(name) for name in "abc"),
            *(lambda name=name: work.transact(name) for name in "de"),
            work.consume,
            work.consume,
            work.read,
        )
        engine.sync()
        work.check(engine)
        assert len(work.consumed) == len(set(work.consumed)), "a message went to two members"
        assert engine.undecided() == []
    assert fmq.check(tmp_path / "d").problems == ()
    with fmq.open(tmp_path / "d", Options(**OPTIONS)) as engine:
        work.check(engine)
        with engine.consumer("t", group="g") as consumer:
            again = set()
            while deliveries := consumer.poll(limit=1000):
                again |= {(delivery.queue, delivery.offset) for delivery in deliveries}
        assert not again & set(work.consumed)


def test_threads_that_wait_at_once_share_a_sync(tmp_path: Path) -> None:
    with fmq.open(tmp_path / "d", Options(segment_bytes=1 << 20)) as engine:
        before = engine.stats().syncs

        def send() -> None:
            for _ in range(100):
                engine.send("t", b"x")

        together(*[send] * 8)
        assert engine.queues("t")[0].next == 800
        assert engine.stats().syncs - before < 800


def own_threads() -> set[str]:
    return {each.name for each in threading.enumerate() if each.name.startswith("fmq ")}


@pytest.mark.parametrize("failing", [False, True])
def test_an_engines_threads_end_at_its_close(failing: bool) -> None:
    """This holds after a disk failure too: each thread that waited gets EngineFailed."""
    disk = FaultDisk(CrashDisk())
    assert own_threads() == set()
    engine = fmq.open("d", Options(segment_bytes=64 * 1024), disk=disk)
    assert own_threads() == {"fmq committer", "fmq chores"}
    told: list[BaseException] = []

    def send() -> None:
        try:
            for _ in range(50):
                engine.send("t", b"x")
        except EngineFailed as error:
            told.append(error)

    if failing:
        disk.fail("write", nth=20, names="*.seg", persistently=True)
    together(*[send] * 4)
    assert len(told) == (4 if failing else 0)
    engine.close()
    assert own_threads() == set()


FEW_THREADS = """
import resource, sys, threading, fmq
threading.stack_size(1 << 30)
in_use = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
most = in_use + (1 << 29) + int(sys.argv[2]) * (1 << 30)
_, unlimited = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (most, unlimited))
try:
    fmq.open(sys.argv[1])
except RuntimeError:
    print(threading.active_count())
resource.setrlimit(resource.RLIMIT_AS, (unlimited, unlimited))
with fmq.open(sys.argv[1]) as engine:
    engine.send("t", b"x")
"""


@pytest.mark.parametrize("there_are", ["0", "1"])
def test_an_opening_that_cannot_start_threads_leaves_nothing_open(
    tmp_path: Path, there_are: str
) -> None:
    """Above all it leaves no thread that runs chores in a directory that is not ours any more.

    Method: limit the memory of the process to the stacks of some threads.
    """
    assert run(FEW_THREADS, tmp_path / "d", there_are) == "1"


def test_an_engine_opened_without_threads_starts_none(tmp_path: Path) -> None:
    with fmq.open(tmp_path / "d", background=False) as engine:
        together(*[lambda: engine.send("t", b"x")] * 4)
        assert own_threads() == set()
        assert engine.queues("t")[0].next == 4


def test_of_many_concurrent_decisions_one_wins_and_all_agree(tmp_path: Path) -> None:
    with fmq.open(tmp_path / "d", Options(segment_bytes=1 << 20)) as engine:
        for number in range(20):
            tx = engine.transaction(tx_id=f"T{number}")
            tx.send("t", b"x")
            tx.prepare()
            states: list[str] = []

            def decide(decision: Any, states: list[str] = states, tx_id: str = tx.tx_id) -> None:
                try:
                    states.append(engine.decide(tx_id, decision).state)
                except fmq.errors.AlreadyDecided as error:
                    states.append(error.outcome.state)

            together(*[lambda: decide("commit"), lambda: decide("rollback")] * 3)
            assert len(states) == 6
            assert set(states) == {engine.outcome(tx.tx_id).state}


def test_close_waits_for_running_calls_and_refuses_later_ones(tmp_path: Path) -> None:
    """Every send is refused as closed, or is there after opening again."""
    for number in range(10):
        engine = fmq.open(tmp_path / "d", Options(segment_bytes=64 * 1024))
        started = engine.stats().messages
        sent: list[int] = []

        turns = threading.Semaphore(0)

        def send(
            engine: Engine = engine, sent: list[int] = sent, turns: threading.Semaphore = turns
        ) -> None:
            with pytest.raises(Closed):
                while True:
                    engine.send("t", b"x")
                    sent.append(1)
                    turns.release()

        def close(
            engine: Engine = engine, turns: threading.Semaphore = turns, number: int = number
        ) -> None:
            for _ in range(5 * number):
                assert turns.acquire(timeout=60)
            engine.close()

        together(send, send, send, close)
        with fmq.open(tmp_path / "d") as engine:
            assert engine.stats().messages == started + len(sent)
            assert engine.stats().recovery.clean


def test_close_waits_for_running_reads(tmp_path: Path) -> None:
    """A read gets its messages or Closed, never an error of a closed file."""
    with fmq.open(tmp_path / "d", Options(segment_bytes=64 * 1024)) as engine:
        for _ in range(20):
            engine.send_many("t", [b"x" * 1000] * 30)
    for number in range(20):
        engine = fmq.open(tmp_path / "d", Options(segment_bytes=64 * 1024, read_ahead_bytes=4096))
        turns = threading.Semaphore(0)

        def read(engine: Engine = engine, turns: threading.Semaphore = turns) -> None:
            with pytest.raises(Closed):
                while True:
                    for message in engine.read("t", limit=600):
                        assert message.body == b"x" * 1000
                        turns.release()

        def close(
            engine: Engine = engine, turns: threading.Semaphore = turns, number: int = number
        ) -> None:
            for _ in range(50 * number):
                assert turns.acquire(timeout=60)
            engine.close()

        together(read, read, close)


@pytest.mark.parametrize("topic", ["t", "not there yet"])
def test_close_wakes_waiting_reads(tmp_path: Path, topic: str) -> None:
    engine = fmq.open(tmp_path / "d", Options(segment_bytes=4096))
    engine.send("t", b"0")
    consumer = engine.consumer(topic, group="g")
    for delivery in consumer.poll():
        delivery.ack()
    waiting = threading.Barrier(3)

    def poll() -> None:
        waiting.wait()
        with pytest.raises(Closed):
            consumer.poll(timeout=60)

    def read() -> None:
        waiting.wait()
        with pytest.raises(Closed):
            engine.read(topic, offset=1, timeout=60)

    def close() -> None:
        waiting.wait()
        engine.close()

    began = time.monotonic()
    together(poll, read, close)
    assert time.monotonic() - began < 30


def test_a_message_wakes_waiting_reads(tmp_path: Path) -> None:
    with fmq.open(tmp_path / "d", Options(segment_bytes=4096)) as engine:
        got: list[bytes] = []

        def poll() -> None:
            with engine.consumer(["t", "u"], group="g") as consumer:
                for delivery in consumer.poll(timeout=60):
                    got.append(delivery.body)

        def read() -> None:
            got.extend(bytes(message.body) for message in engine.read("t", timeout=60))

        began = time.monotonic()
        together(poll, read, lambda: engine.send("t", b"0"))
        assert got == [b"0", b"0"]
        assert time.monotonic() - began < 30


def test_consumers_of_a_group_never_get_the_same_message(tmp_path: Path) -> None:
    with fmq.open(tmp_path / "d", Options(segment_bytes=1 << 20)) as engine:
        engine.send_many("t", [b"x"] * 500)
        got: list[int] = []

        def consume() -> None:
            with engine.consumer("t", group="g") as consumer:
                while deliveries := consumer.poll(limit=7):
                    for delivery in deliveries:
                        delivery.ack(sync=False)
                        got.append(delivery.offset)

        together(*[consume] * 4)
        assert sorted(got) == list(range(500))


def test_many_threads_can_prepare_with_frequent_thread_switches(tmp_path: Path) -> None:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with fmq.open(tmp_path / "d", Options(segment_bytes=1 << 20)) as engine:

            def prepare() -> None:
                for _ in range(150):
                    tx = engine.transaction()
                    tx.send("t", b"x")
                    tx.prepare()
                    tx.commit()

            together(*[prepare] * 8)
            assert len(engine.read("t", limit=2000)) == 8 * 150
            assert engine.undecided() == []
    finally:
        sys.setswitchinterval(before)
