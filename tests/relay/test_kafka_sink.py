"""A sink from a real Kafka: its messages, once each, after crashes of the sink."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any

import pytest

import fmq
from fmq import Engine
from fmq.relay import RelayError, RelayTakenOver
from tests.budget import BUDGET

pytest.importorskip("confluent_kafka", reason="no client of Kafka on this machine")

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from fmq.relay.kafka_sink import KafkaSink

NUMBERS = count()
ROOT = Path(__file__).parent.parent.parent


class Source:
    """Topics of Kafka, behind a prefix of their own."""

    def __init__(self, servers: str, **queues: int) -> None:
        self.servers = servers
        self.name = f"s{next(NUMBERS)}"
        self.prefix = f"{self.name}-"
        self.admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
        self.make(**queues)
        self.producer = Producer({"bootstrap.servers": servers, "log_level": 0})

    def make(self, **queues: int) -> None:
        wanted = [NewTopic(self.prefix + topic, number, 1) for topic, number in queues.items()]
        for made in self.admin.create_topics(wanted).values():
            made.result(30)

    def send(self, topic: str, *bodies: bytes | None, queue: int = 0, **more: Any) -> None:
        for body in bodies:
            self.producer.produce(self.prefix + topic, body, partition=queue, **more)
        assert self.producer.flush(30) == 0

    def sink(self, engine: Engine, **more: Any) -> KafkaSink:
        how: Any = {"topics": ["a"], "name": self.name, "prefix": self.prefix} | more
        return KafkaSink(engine, self.servers, **how)

    def copy(self, engine: Engine, **more: Any) -> KafkaSink:
        sink = self.sink(engine, **more)
        sink.run(once=True)
        return sink


@pytest.fixture
def source(broker: Any) -> Callable[..., Source]:
    return lambda **queues: Source(broker.servers, **(queues or {"a": 1}))


def bodies(engine: Engine, topic: str = "a", queue: int = 0) -> list[bytes]:
    return [message.body for message in engine.read(topic, queue=queue, limit=100_000)]


def numbered(first: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, end)]


def test_partitions_become_queues_and_a_sink_goes_on_where_the_last_one_was(
    source: Callable[..., Source], engine: Engine
) -> None:
    made = source(a=2, b=1)
    made.send("a", *numbered(0, 5), queue=1)
    made.send("b", b"x")
    assert made.copy(engine, topics=["a", "b"]).stats().messages == 6
    assert (bodies(engine), bodies(engine, queue=1)) == ([], numbered(0, 5))
    assert bodies(engine, "b") == [b"x"]
    made.send("a", *numbered(5, 9), queue=1)
    assert made.copy(engine, topics=["a", "b"]).stats().messages == 4
    assert bodies(engine, queue=1) == numbered(0, 9)


def test_a_message_has_all_that_a_record_has(source: Callable[..., Source], engine: Engine) -> None:
    made = source()
    said: Any = {"key": "k\xfc".encode(), "headers": {"h": b"\xff"}, "timestamp": 1_700_000_000_123}
    made.send("a", b"\0body", **said)
    made.send("a", None)
    made.copy(engine)
    full, empty = engine.read("a")
    where = f"{made.prefix}a/0"
    assert (full.body, full.key) == (b"\0body", "k\xfc")
    assert full.headers == {"h": r"\xff", "kafka-id": f"{where}/0", "kafka-time": "1700000000123"}
    assert (empty.body, empty.key) == (b"", None)
    assert empty.headers is not None
    assert (empty.headers["kafka-tombstone"], empty.headers["kafka-id"]) == ("1", f"{where}/1")


def test_an_aborted_transaction_of_kafka_is_not_copied(
    source: Callable[..., Source], engine: Engine
) -> None:
    made = source()
    producer = Producer(
        {"bootstrap.servers": made.servers, "transactional.id": made.name, "log_level": 0}
    )
    producer.init_transactions(30)
    for body, is_kept in ((b"never", False), (b"kept", True)):
        producer.begin_transaction()
        producer.produce(made.prefix + "a", body, partition=0)
        if is_kept:
            producer.commit_transaction(30)
        else:
            producer.flush(30)
            producer.abort_transaction(30)
    made.copy(engine)
    assert bodies(engine) == [b"kept"]


class Crash(BaseException):
    """Raised where a sink dies."""


@pytest.mark.parametrize("is_committed", [False, True])
def test_a_sink_that_dies_around_its_commit_copies_once(
    source: Callable[..., Source], engine: Engine, is_committed: bool
) -> None:
    made = source()
    made.send("a", *numbered(0, 20))

    class Dies(KafkaSink):
        left = 2

        def _write(self, messages: list[Any]) -> None:
            self.left -= 1
            if not self.left and not is_committed:
                raise Crash
            super()._write(messages)
            if not self.left:
                raise Crash

    how: Any = {"topics": "a", "name": made.name, "prefix": made.prefix, "batch": 7}
    with pytest.raises(Crash):
        Dies(engine, made.servers, **how).run(once=True)
    made.copy(engine)
    assert bodies(engine) == numbered(0, 20)


def test_an_older_sink_is_shut_out_and_a_lost_answer_is_asked_for(
    source: Callable[..., Source], engine: Engine
) -> None:
    made = source()
    made.send("a", *numbered(0, 20))

    class Doubts(KafkaSink):
        is_over = False

        def _write(self, messages: list[Any]) -> None:
            super()._write(messages)
            if not self.is_over:
                self.is_over = True
                raise fmq.OutcomeUnknown("the answer is lost")

    class Overtaken(KafkaSink):
        def _write(self, messages: list[Any]) -> None:
            made.copy(engine)
            super()._write(messages)

    how: Any = {"topics": "a", "name": made.name, "prefix": made.prefix, "batch": 7}
    doubting = Doubts(engine, made.servers, **how)
    doubting.run(once=True)
    assert doubting.stats().doubts == 1
    made.send("a", *numbered(20, 30))
    with pytest.raises(RelayTakenOver, match="another sink has claimed"):
        Overtaken(engine, made.servers, **how).run(once=True)
    assert bodies(engine) == numbered(0, 30)


def test_what_is_too_large_for_one_transaction_comes_in_several(
    source: Callable[..., Source], engine: Engine
) -> None:
    """The engine of the tests has small segments."""
    made = source()
    made.send("a", *[bytes(6000)] * 9, b"end")
    assert made.copy(engine).stats().transactions > 1
    assert len(bodies(engine)) == 10
    made.send("a", bytes(100_000))
    with pytest.raises(RelayError, match=f"{made.prefix}a/0/10 of Kafka is too large"):
        made.copy(engine)


def test_missing_and_remade_topics_are_refused(
    source: Callable[..., Source], engine: Engine
) -> None:
    made = source()
    with pytest.raises(RelayError, match="Kafka has no topic"):
        made.copy(engine, topics=["none"])
    made.send("a", *numbered(0, 3))
    made.copy(engine)
    for gone in made.admin.delete_topics([made.prefix + "a"]).values():
        gone.result(30)
    ends = monotonic() + 60
    while True:
        try:
            made.make(a=1)
            break
        except Exception:  # the old one is not quite gone
            assert monotonic() < ends
    made.send("a", *numbered(0, 9))
    with pytest.raises(RelayError, match="deleted in Kafka and made again"):
        made.copy(engine)
    made.copy(engine, name=made.name + "-again", topics="a")
    assert bodies(engine) == [*numbered(0, 3), *numbered(0, 9)]


def test_what_kafka_has_dropped_is_refused(source: Callable[..., Source], engine: Engine) -> None:
    from confluent_kafka import TopicPartition

    made = source()
    made.send("a", *numbered(0, 3))
    made.copy(engine)
    made.send("a", *numbered(3, 9))
    dropped = made.admin.delete_records([TopicPartition(made.prefix + "a", 0, 6)])
    for each in dropped.values():
        each.result(30)
    with pytest.raises(RelayError, match="retention has dropped"):
        made.copy(engine)


def test_a_new_partition_becomes_a_queue(source: Callable[..., Source], engine: Engine) -> None:
    made = source()
    made.send("a", b"0")
    made.copy(engine)
    for each in made.admin.create_partitions([NewPartitions(made.prefix + "a", 2)]).values():
        each.result(30)
    ends = monotonic() + 60
    while (
        len(made.admin.list_topics(made.prefix + "a", 30).topics[made.prefix + "a"].partitions) < 2
    ):
        assert monotonic() < ends
    made.producer = Producer({"bootstrap.servers": made.servers, "log_level": 0})  # it has to know
    made.send("a", b"1", queue=1)
    made.copy(engine)
    assert (bodies(engine), bodies(engine, queue=1)) == ([b"0"], [b"1"])


def test_kills_of_the_command_copy_nothing_twice(
    source: Callable[..., Source], tmp_path: Path, broker: Any
) -> None:
    """`fmq sink` is killed at random times while it copies into a directory that is served."""
    made, total, seed = source(a=2), 3000, 7
    random = Random(seed)
    path = tmp_path / "here"
    asked = ("sink", f"kafka://{made.servers}", path, "--topics", "a", "--prefix", made.prefix)
    line = [sys.executable, "-m", "fmq", *map(str, asked), "--batch", "20"]
    with fmq.open(path) as engine, engine.serve():
        for queue in range(2):
            made.send("a", *numbered(0, total), queue=queue)
        for _ in range(3 if BUDGET <= 1 else 20):
            with subprocess.Popen(line, cwd=ROOT, stderr=subprocess.DEVNULL) as sink:
                before = sum(info.next for info in engine.queues("a"))
                wanted = before + random.randrange(20, 800)
                while sum(info.next for info in engine.queues("a")) < min(wanted, 2 * total):
                    assert sink.poll() is None
                sink.kill()
        subprocess.run([*line, "--once"], cwd=ROOT, check=True, capture_output=True)
        for queue in range(2):
            assert bodies(engine, queue=queue) == numbered(0, total), f"{seed=}"
