"""The targets of relay_chaos.py: each starts its server, ends it, and reads what it shows.

The reader knows no relay: it asks the server with its own client.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

TOPICS = {"a": 2, "b": 1, "c": 1}  # with how many queues
NAME, PREFIX, HEADER = "chaos", "chaos-", "chaos-batch"


class Shown(NamedTuple):
    """A message as a reader of the target sees it."""

    topic: str
    queue: int
    offset: int
    body: bytes
    batch: str


class Kafka:
    def __init__(self, folder: Path) -> None:
        from tools import kafka

        if missing := kafka.fetch():
            raise SystemExit(missing)
        self.broker = kafka.Broker(folder)
        self.address = f"kafka://{self.broker.servers}"

    def start(self) -> None:
        self.broker.start()

    def stop(self) -> None:
        self.broker.stop()

    def close(self) -> None:
        self.broker.stop()

    def read(self) -> list[Shown]:
        from confluent_kafka import Consumer, KafkaError, TopicPartition

        settings = {"bootstrap.servers": self.broker.servers, "group.id": "judge"}
        how = {"enable.partition.eof": True, "enable.auto.commit": False, "log_level": 0}
        consumer = Consumer({**settings, **how, "isolation.level": "read_committed"})
        places = [(topic, queue) for topic, n in TOPICS.items() for queue in range(n)]
        consumer.assign([TopicPartition(PREFIX + topic, queue, 0) for topic, queue in places])
        found, left = [], len(places)
        while left:
            message = consumer.poll(30)
            assert message is not None, "the reader hangs"
            error = message.error()
            if error is None:
                headers: dict[str, Any] = dict(message.headers() or ())
                topic, queue, offset = _id(headers["fmq-id"].decode())
                assert (message.topic(), message.partition()) == (PREFIX + topic, queue)
                batch = headers[HEADER].decode()
                found.append(Shown(topic, queue, offset, message.value() or b"", batch))
            elif error.code() == KafkaError._PARTITION_EOF:
                left -= 1
        consumer.close()
        return found


class KafkaOfThree(Kafka):
    """Kafka with three brokers, of which one is killed at a time."""

    def __init__(self, folder: Path) -> None:
        from tools import kafka

        if missing := kafka.fetch():
            raise SystemExit(missing)
        self.broker: Any = kafka.Brokers(folder)
        self.address = f"kafka://{self.broker.servers}"
        self.killed = 0

    def stop(self) -> None:
        self.killed += 1
        self.broker.nodes[self.killed % 3].stop()

    def start(self) -> None:
        self.broker.nodes[self.killed % 3].start()

    def close(self) -> None:
        for each in self.broker.nodes:
            each.stop()


class Nats:
    def __init__(self, folder: Path) -> None:
        from tools import nats_server

        if missing := nats_server.missing():
            raise SystemExit(missing)
        self.server = nats_server.Server(folder)
        self.address = self.server.address
        self.start, self.stop = self.server.start, self.server.stop

    def read(self) -> list[Shown]:
        return asyncio.run(self._read())

    async def _read(self) -> list[Shown]:
        import nats

        client = await nats.connect(self.address)
        js, stream = client.jetstream(), f"fmq-relay-{NAME}"
        left = (await js.stream_info(stream)).state.messages
        reader = await js.add_consumer(stream, ack_policy="none")
        reading = await js.pull_subscribe_bind(stream=stream, consumer=reader.name)
        found = []
        while left:
            for message in await reading.fetch(min(left, 500), timeout=30):
                left -= 1
                if message.subject != stream:
                    headers: dict[str, Any] = message.headers or {}
                    topic, queue, offset = _id(headers["fmq-id"])
                    assert message.subject == f"{PREFIX}{topic}.{queue}"
                    what = topic, queue, offset, message.data, headers[HEADER]
                    found.append(Shown(*what))
        await client.close()
        return found


class RedisStreams:
    def __init__(self, folder: Path) -> None:
        from tools import redis_server

        if missing := redis_server.missing():
            raise SystemExit(missing)
        self.server = redis_server.Server(folder)
        self.address = self.server.address
        self.start, self.stop = self.server.start, self.server.stop

    def read(self) -> list[Shown]:
        from redis import Redis

        client: Any = Redis.from_url(self.address)
        found = []
        for topic, queues in TOPICS.items():
            for queue in range(queues):
                for _, fields in client.xrange(f"{PREFIX}{topic}.{queue}"):
                    where = _id(fields[b"fmq-id"].decode())
                    assert where[:2] == (topic, queue)
                    found.append(Shown(*where, fields[b"body"], fields[HEADER.encode()].decode()))
        client.close()
        return found


class RabbitStream:
    def __init__(self, folder: Path) -> None:
        from tools import rabbitmq_server

        if missing := rabbitmq_server.missing():
            raise SystemExit(missing)
        self.server = rabbitmq_server.Server(folder)
        self.address = self.server.address
        self.start, self.stop = self.server.start, self.server.stop

    def read(self) -> list[Shown]:
        return asyncio.run(self._read())

    async def _read(self) -> list[Shown]:
        """Read until a message that is written here, and is not one of a relay."""
        import rstream

        stream, found, end = f"fmq-relay-{NAME}", [], asyncio.Event()
        who = {"username": "guest", "password": "guest"}
        producer = rstream.Producer("127.0.0.1", self.server.stream, **who)  # type: ignore[arg-type]
        await producer.start()
        await producer.send_wait(stream, b"\0Su\xa0\7the end")
        await producer.close()

        def take(message: Any, _: object) -> None:
            said = message.application_properties or {}
            if b"fmq-id" in said:
                where = _id(said[b"fmq-id"].decode())
                assert message.properties.subject.decode() == f"{PREFIX}{where[0]}.{where[1]}"
                batch = said[HEADER.encode()].decode()
                found.append(Shown(*where, message.body, batch))
            elif message.body == b"the end":
                end.set()

        consumer = rstream.Consumer("127.0.0.1", self.server.stream, **who)  # type: ignore[arg-type]
        await consumer.start()
        first = rstream.ConsumerOffsetSpecification(rstream.OffsetType.FIRST)
        how: Any = {"offset_specification": first, "decoder": rstream.amqp_decoder}
        await consumer.subscribe(stream, take, **how)
        await asyncio.wait_for(end.wait(), 120)
        await consumer.close()
        return found


class RabbitQueues(RabbitStream):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.address = self.server.queues

    async def _read(self) -> list[Shown]:
        import aio_pika

        found = []
        async with await aio_pika.connect(self.address) as connection:
            channel = await connection.channel()
            for topic in TOPICS:
                queue = await channel.get_queue(PREFIX + topic)
                while (message := await queue.get(no_ack=True, fail=False)) is not None:
                    said: dict[str, Any] = dict(message.headers)
                    where = _id(said["fmq-id"])
                    assert (message.message_id, where[0]) == (said["fmq-id"], topic)
                    found.append(Shown(*where, message.body, said[HEADER]))
        return found


class PostgreSQL:
    def __init__(self, folder: Path) -> None:
        from benchmarks.peers.postgres import SETTINGS, Postgres

        folder.chmod(0o755)
        self.folder, self.settings = folder, SETTINGS
        self.peer = Postgres(folder)
        self.server = self.peer._server
        self.address = f"postgresql://postgres@/postgres?host={self.server.sockets}"

    def stop(self) -> None:
        pid = int((self.folder / "cluster" / "postmaster.pid").read_text().split()[0])
        os.kill(pid, signal.SIGQUIT)  # it ends at once, and has to recover
        assert self.server._process is not None
        self.server._process.wait()

    def start(self) -> None:
        line = (self.server.program("postgres"), "-D", str(self.folder / "cluster"))
        where = ("-k", self.server.sockets, *self.settings)
        log = self.folder / "postgres.log"
        self.server.start(*line, *where, log=log, ready=self.peer._ready)

    def read(self) -> list[Shown]:
        import psycopg

        asked = f"SELECT topic, queue, \"offset\", body, headers->>'{HEADER}' FROM fmq_relayed"
        with psycopg.connect(self.address) as connection:
            return [Shown(*row) for row in connection.execute(f"{asked} ORDER BY id")]


BROKERS: dict[str, Callable[[Path], Any]] = {
    "kafka": Kafka,
    "kafka-of-three": KafkaOfThree,
    "nats": Nats,
    "postgresql": PostgreSQL,
    "rabbitmq": RabbitStream,
    "rabbitmq-queues": RabbitQueues,
    "redis": RedisStreams,
}


def _id(text: str) -> tuple[str, int, int]:
    _, topic, queue, offset = text.split("/")
    return topic, int(queue), int(offset)


# --- the run --------------------------------------------------------------------------------------
