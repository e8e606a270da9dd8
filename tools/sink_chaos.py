#!/usr/bin/env python3
"""Kill sinks, of which two run at once, engine and broker while topics of Kafka are copied.

    python tools/relay_chaos.py --sink --seed 7 --minutes 15 --until-counts

Two producers write transactions over two topics, of which some are aborted. Sinks of one name shut
each other out, are killed or stopped around their transactions, and come back. In the end each
queue must have exactly the messages that a consumer with read_committed sees, in their order.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.relay_chaos import AT_POINT, POINT, Run, connected, is_stopped

TOPICS = {"a": 2, "b": 1}  # with how many partitions
NAME = "chaos"
BATCH = 200


# --- the processes that are killed ----------------------------------------------------------------


def produce(servers: str, seed: str, folder: str) -> None:
    """Write transactions until the file `stop` is there. Note what was committed and aborted."""
    from confluent_kafka import KafkaException, Producer

    random, number = Random(int(seed)), 0
    how = {"bootstrap.servers": servers, "transactional.id": f"writer-{seed}", "log_level": 0}
    producer: Any = None
    with Path(folder, f"acked-{seed}").open("w") as acked:
        while not Path(folder, "stop").exists():
            ids = [f"{seed}-{number + n}" for n in range(random.randint(1, 39))]
            number += len(ids)
            try:
                if producer is None:
                    producer = Producer(how)
                    producer.init_transactions(30)
                producer.begin_transaction()
                for each in ids:
                    topic = random.choice([*TOPICS])
                    producer.produce(topic, each, partition=random.randrange(TOPICS[topic]))
                if random.random() < 0.15:
                    producer.flush(30)
                    producer.abort_transaction(30)
                    ids = [f"not {each}" for each in ids]
                else:
                    producer.commit_transaction(30)
            except KafkaException as error:  # it may be there or not
                print(error, flush=True)
                producer = None
                continue
            acked.write("".join(f"{each}\n" for each in ids))
            acked.flush()


def sink(path: str, servers: str, seed: str, point: str) -> int:
    """Run a sink that dies or stops around some of its transactions. Return 3 if another one has
    taken over.
    """
    from fmq.relay import RelayTakenOver
    from fmq.relay.kafka_sink import KafkaSink

    random = Random(int(seed))

    def die() -> None:
        if random.random() < float(point):
            os.kill(os.getpid(), random.choice((signal.SIGKILL, signal.SIGSTOP)))

    class Dies(KafkaSink):
        def _write(self, messages: list[Any]) -> None:
            die()
            super()._write(messages)
            die()

    with connected(Path(path), 60) as engine:
        try:
            Dies(engine, servers, topics=[*TOPICS], name=NAME, batch=BATCH).run(
                once=not float(point)
            )
        except RelayTakenOver:
            return 3
    return 0


# --- the run --------------------------------------------------------------------------------------


class SinkRun(Run):
    """A run of sinks, of which two copy at once."""

    SCRIPT = __file__
    AT_ONCE = 2

    def prepare(self) -> None:
        from confluent_kafka.admin import AdminClient
        from confluent_kafka.cimpl import NewTopic

        self.servers = self.broker.address.removeprefix("kafka://")
        admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        wanted = [NewTopic(topic, n, -1) for topic, n in TOPICS.items()]
        for made in admin.create_topics(wanted).values():
            made.result(30)
        self.gone: set[int] = set()

    def writers_of(self) -> list[subprocess.Popen[bytes]]:
        return [self.spawn("produce", self.servers, n, self.folder) for n in (1, 2)]

    def begin(self, point: float = POINT) -> None:
        seed = self.random.randrange(1 << 30)
        self.now = self.spawn("sink", self.path, self.servers, seed, point)
        self.relays.append(self.now)

    def step(self) -> None:
        """Let there be two sinks, and do as with relays."""
        for each in self.relays:
            if each is not self.now and each.poll() is not None and each.pid not in self.gone:
                self.gone.add(each.pid)
                self.events[f"relay killed{AT_POINT}"] += each.returncode == -signal.SIGKILL
        while sum(each.poll() is None for each in self.relays) < self.AT_ONCE:
            self.begin()
        super().step()
        if self.now.poll() is not None:
            self.gone.add(self.now.pid)

    def end(self) -> None:
        """End the producers and all sinks but one, which copies the rest."""
        (self.folder / "stop").touch()
        for writer in self.writers:
            writer.wait(120)
        for each in self.relays:
            if is_stopped(each):
                each.send_signal(signal.SIGCONT)
        self.begin(0.0)
        if self.now.wait(150) == 3:  # one that came back has claimed after it
            self.begin(0.0)
            self.now.wait(150)

    def judged(self) -> Counter[str]:
        """Compare each queue with what a consumer sees of its partition."""
        names = ("missing", "twice", "out of order", "other bodies", "lost or undone here")
        found = Counter[str](dict.fromkeys(names, 0))
        bodies = set[bytes]()
        with connected(self.path, 30) as engine:
            for (topic, queue), records in read(self.servers).items():
                got, page = [], engine.read(topic, queue=queue, limit=1000)
                while page:
                    got += page
                    page = engine.read(topic, queue=queue, offset=len(got), limit=1000)
                copied = {each.headers["kafka-id"]: each.body for each in got}
                ids = [each.headers["kafka-id"] for each in got]
                found["messages"] += len(records)
                found["missing"] += len(records.keys() - copied.keys())
                found["twice"] += len(ids) - len(copied)
                found["out of order"] += [*dict.fromkeys(ids)] != [*records]
                found["other bodies"] += sum(
                    body != records.get(where) for where, body in copied.items()
                )
                bodies |= {each.body for each in got}
        for seed in (1, 2):
            for line in (self.folder / f"acked-{seed}").read_text().split("\n")[:-1]:
                is_wrong = (line.removeprefix("not ").encode() in bodies) == line.startswith("not ")
                found["lost or undone here"] += is_wrong
        return found


def read(servers: str) -> dict[tuple[str, int], dict[str, bytes]]:
    """Return the committed messages of each partition by their ids, in order."""
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    how = {"bootstrap.servers": servers, "group.id": "judge", "enable.partition.eof": True}
    consumer = Consumer({**how, "isolation.level": "read_committed", "log_level": 0})
    found: dict[tuple[str, int], dict[str, bytes]] = {
        (topic, number): {} for topic, n in TOPICS.items() for number in range(n)
    }
    consumer.assign([TopicPartition(*part, 0) for part in found])
    left = len(found)
    while left:
        message = consumer.poll(60)
        assert message is not None, "the reader hangs"
        error = message.error()
        topic, number = message.topic() or "", message.partition() or 0
        if error is None:
            where = f"{topic}/{number}/{message.offset()}"
            found[topic, number][where] = message.value() or b""
        elif error.code() == KafkaError._PARTITION_EOF:
            left -= 1
    consumer.close()
    return found


if __name__ == "__main__":
    what, *asked = sys.argv[1:]
    if what == "sink":
        sys.exit(sink(*asked))
    produce(*asked)
