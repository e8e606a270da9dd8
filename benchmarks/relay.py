"""A relay into Kafka beside the bare client: `python -m benchmarks relay`.

The same messages go once through a relay, and once from a list by the client alone: without fmq,
without a place, without headers. Both make a Kafka transaction of each batch, against the same
broker, in turn. A line has the messages a second, the processor time of a message in microseconds
(all threads of the client are in it), and the medians of the ratios of the rounds.

Latency is the time from the return of a commit until a consumer with read_committed has the
message: of an fmq transaction that a relay copies, and of a Kafka transaction, whose own commit is
counted in, as nobody sees it earlier. The first round of both does not count.
"""

from __future__ import annotations

import argparse
import logging
import os
import resource
import statistics
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition

import fmq
from fmq.relay import Relay, RelayBatch, RelayPlace
from fmq.relay.kafka_target import KafkaTarget, create_topics
from tools import kafka

TOPICS = ("a", "b", "c")
IN_TRANSACTION = 30
LATENCIES = 300


class Measured(NamedTuple):
    """One round of one subject."""

    rate: float
    """Messages a second."""
    processor_us: float
    """Of a message."""


class Watch:
    """The time and the processor time of this process, from the second batch on."""

    def __init__(self) -> None:
        self.count = self.before = 0

    def batch(self, messages: int) -> None:
        """Note a batch. The first one makes the connections, so it is not counted."""
        if not self.count:
            self.began, self.used, self.before = time.perf_counter(), processor(), messages
        self.count += messages

    def measured(self) -> Measured:
        counted = self.count - self.before
        took, used = time.perf_counter() - self.began, processor() - self.used
        return Measured(counted / took, 1e6 * used / counted)


def processor() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


class Watched(KafkaTarget):
    """A target that notes its batches."""

    def __init__(self, *args: str, watch: Watch, **more: str) -> None:
        super().__init__(*args, **more)
        self._watch = watch

    def deliver(self, batch: RelayBatch) -> None:
        super().deliver(batch)
        self._watch.batch(len(batch.messages))


def fill(directory: Path, count: int, size: int) -> None:
    """Send `count` messages in transactions over all topics."""
    with fmq.open(directory) as engine:
        for _ in range(count // IN_TRANSACTION):
            with engine.transaction() as tx:
                for topic in TOPICS:
                    tx.send_many(topic, [os.urandom(size)] * (IN_TRANSACTION // len(TOPICS)))


def relayed(directory: Path, servers: str, batch: int) -> Measured:
    """Copy all messages by a relay of a new name."""
    name, watch = uuid.uuid4().hex[:8], Watch()
    create_topics(servers, name, dict.fromkeys(TOPICS, 1), f"{name}-")
    with fmq.open(directory) as engine:
        target = Watched(servers, name, prefix=f"{name}-", watch=watch)
        relay = Relay(engine, target, topics=TOPICS, name=name, batch=batch)
        relay.run(once=True)
        measured = watch.measured()
        relay.close()
        engine.group(f"relay-{name}").delete()
    return measured


def bare(bodies: list[bytes], servers: str, batch: int) -> Measured:
    """Produce the messages by the client alone, with the settings of the relay."""
    name, watch = uuid.uuid4().hex[:8], Watch()
    create_topics(servers, name, dict.fromkeys(TOPICS, 1), f"{name}-")
    topics = [f"{name}-{topic}" for topic in TOPICS]
    producer = transactional(servers, name)
    for at in range(0, len(bodies), batch):
        part = bodies[at : at + batch]
        producer.begin_transaction()
        for number, body in enumerate(part):
            producer.produce(topics[number // 10 % 3], body, partition=0)
        producer.commit_transaction(60)
        watch.batch(len(part))
    return watch.measured()


def transactional(servers: str, name: str) -> Producer:
    how = {"linger.ms": 5, "delivery.report.only.error": True, "log_level": 0}
    producer = Producer({"bootstrap.servers": servers, "transactional.id": name, **how})
    producer.init_transactions(60)
    return producer


# --- latency --------------------------------------------------------------------------------------


def latencies(servers: str, topic: str, send: Callable[[bytes], float]) -> list[float]:
    """Return for each message the milliseconds until a consumer has it. `send` returns the time
    from which they count.
    """
    settings = {"bootstrap.servers": servers, "group.id": topic, "log_level": 0}
    how = {"isolation.level": "read_committed", "fetch.wait.max.ms": 5}
    consumer = Consumer({**settings, **how})
    consumer.assign([TopicPartition(topic, 0, 0)])
    seen, found = threading.Semaphore(0), [0.0]
    ready = threading.Event()

    def watch() -> None:
        while not ready.is_set():
            message = consumer.poll(0.05)
            if message is not None and not message.error():
                found[0] = time.perf_counter()
                seen.release()

    thread = threading.Thread(target=watch)
    thread.start()
    waited = []
    for number in range(LATENCIES + 20):
        began = send(b"%d" % number)
        assert seen.acquire(timeout=30), "the consumer hangs"
        if number >= 20:
            waited.append((found[0] - began) * 1e3)
        time.sleep(0.005)
    ready.set()
    thread.join()
    consumer.close()
    return waited


def latency_relayed(directory: Path, servers: str) -> list[float]:
    name = uuid.uuid4().hex[:8]
    create_topics(servers, name, {"l": 1}, f"{name}-")
    with fmq.open(directory) as engine:
        target = KafkaTarget(servers, name, prefix=f"{name}-")
        relay = Relay(engine, target, topics="l", name=name)
        thread = threading.Thread(target=relay.run)

        def send(body: bytes) -> float:
            with engine.transaction() as tx:
                tx.send("l", body)
            return time.perf_counter()

        if not engine.queues("l"):
            engine.create_topic("l")
        thread.start()
        try:
            return latencies(servers, f"{name}-l", send)
        finally:
            relay.stop()
            thread.join()
            relay.close()


def latency_bare(servers: str) -> list[float]:
    name = uuid.uuid4().hex[:8]
    create_topics(servers, name, {"l": 1}, f"{name}-")
    producer = transactional(servers, name)

    def send(body: bytes) -> float:
        began = time.perf_counter()
        producer.begin_transaction()
        producer.produce(f"{name}-l", body, partition=0)
        producer.commit_transaction(60)
        return began

    return latencies(servers, f"{name}-l", send)


# --- where the processor time goes ----------------------------------------------------------------


def parts(folder: Path, count: int, size: int, batch: int) -> None:
    """Print what the thread of the relay does for a message, without a broker: medians of batches,
    in turn, in microseconds of processor time.
    """
    fill(folder / "parts", count, size)
    # Nobody is there: the client takes what is produced, and has it dropped.
    nowhere = {"bootstrap.servers": "127.0.0.1:1", "linger.ms": 100_000, "log_level": 0}
    target, producer = KafkaTarget("nowhere"), Producer(nowhere)
    spent: dict[str, list[float]] = {}

    def timed(what: str, call: Callable[[], Any]) -> Any:
        began = time.thread_time()
        result = call()
        spent.setdefault(what, []).append(time.thread_time() - began)
        return result

    def bare_ones(messages: list[fmq.Message]) -> None:
        for message in messages:
            producer.produce("bare", message.body, partition=0)

    position = 0
    with fmq.open(folder / "parts") as engine:
        tail = partial(engine.tail, topics=TOPICS, limit=batch)
        while (found := timed("read", partial(tail, position))).messages:
            position = found.position
            place = RelayPlace("0" * 32, position, "a", 0, 0, 0)
            made = RelayBatch(found.messages, place)
            timed("headers", lambda: [*target._envelope.runs(made, bare=True)])  # noqa: B023
            timed("headers and produce", partial(target._produce, producer, made))
            producer.purge()
            timed("produce, bare client", partial(bare_ones, found.messages))
            producer.purge()
    for what, times in spent.items():
        print(f"{what}: {1e6 * statistics.median(times) / batch:.2f} us a message")


# --- the command ----------------------------------------------------------------------------------


def rates(servers: str, folder: Path, rounds: int, count: int, size: int, batch: int) -> None:
    directory = folder / f"size-{size}"
    if not directory.exists():
        fill(directory, count, size)
    bodies = [os.urandom(size) for _ in range(count // IN_TRANSACTION * IN_TRANSACTION)]
    relayed(directory, servers, batch)  # a young broker is slow: this round does not count
    bare(bodies, servers, batch)
    ours, theirs = [], []
    for _ in range(rounds):
        ours.append(relayed(directory, servers, batch))
        theirs.append(bare(bodies, servers, batch))
    median = statistics.median
    rate = median(a.rate / b.rate for a, b in zip(ours, theirs, strict=True))
    work = median(a.processor_us / b.processor_us for a, b in zip(ours, theirs, strict=True))
    print(
        f"{size:5} B, batches of {batch:5,}: relay {median(each.rate for each in ours):9,.0f}/s, "
        f"bare {median(each.rate for each in theirs):9,.0f}/s, ratio {rate:.2f}; processor "
        f"{median(each.processor_us for each in ours):5.1f} us, bare "
        f"{median(each.processor_us for each in theirs):5.1f} us, ratio {work:.1f}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks relay", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--count", type=int, default=60_000, help="messages of each round")
    parser.add_argument("--sizes", default="100,1000", help="of bodies, in bytes")
    parser.add_argument("--batches", default="100,1000", help="messages of a transaction in Kafka")
    parser.add_argument(
        "--parts", action="store_true", help="where the thread of the relay spends its time"
    )
    parser.add_argument("--directory", type=Path, default=Path(), help="on which disk")
    asked = parser.parse_args()
    if asked.parts:
        with tempfile.TemporaryDirectory(dir=asked.directory) as made:
            size, batch = (int(each.split(",")[-1]) for each in (asked.sizes, asked.batches))
            parts(Path(made), asked.count, size, batch)
        return
    if missing := kafka.fetch():
        raise SystemExit(missing)
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors before", flush=True)
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory(dir=asked.directory) as made:
        folder = Path(made)
        (folder / "broker").mkdir()
        broker = kafka.Broker(folder / "broker")
        try:
            for size in map(int, asked.sizes.split(",")):
                for batch in map(int, asked.batches.split(",")):
                    rates(broker.servers, folder, asked.rounds, asked.count, size, batch)
            median = statistics.median
            rounds = [
                (
                    latency_relayed(folder / f"latency-{n}", broker.servers),
                    latency_bare(broker.servers),
                )
                for n in range(asked.rounds + 1)  # in a new directory: a relay copies all
            ][1:]
            for title, each in zip(
                ("relay", "Kafka transaction"), zip(*rounds, strict=True), strict=True
            ):
                p99 = statistics.quantiles([ms for ours in each for ms in ours], n=100)[-1]
                print(f"until seen, {title}: p50 {median(map(median, each)):.2f} ms, p99 {p99:.2f}")
            more = median(median(ours) - median(theirs) for ours, theirs in rounds)
            print(
                f"until seen, by a relay later: {more:.2f} ms, the median of {asked.rounds} rounds"
            )
        finally:
            broker.stop()


if __name__ == "__main__":
    main()
