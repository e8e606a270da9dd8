"""A sink: topics of Kafka are copied into a directory, each message once and in order.

The next offset of each partition is a mark, which is set by the transaction that has the messages,
and only if nobody has moved it. So a crash anywhere copies nothing twice, and two sinks at once
neither. A second mark says which sink counts: a newer one raises it, and the older one ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import closing
from threading import Event
from time import monotonic
from typing import Any, NamedTuple

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka import KafkaException as KafkaFailed
from confluent_kafka.admin import AdminClient

from fmq.errors import MarkMoved, OutcomeUnknown, TooLarge, TopicExists
from fmq.relay.doubts import Doubts
from fmq.relay.kafka_target import SECONDS, explained, patiently
from fmq.relay.relay_errors import RelayError, RelayTakenOver, Unsure

WAIT_SECONDS = 0.2  # a sink that waits for messages checks this often whether it should stop
LOOK_SECONDS = 30  # seconds between two looks whether a topic has more partitions
# Bytes of the bodies in one transaction, which has at least one message.
TRANSACTION_BYTES = 4 << 20
GONE = KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE


class Partition(NamedTuple):
    """A partition of Kafka, and the queue into which it is copied."""

    topic: str
    """Its name in the directory. In Kafka it is behind the prefix."""
    number: int


class SinkStats(NamedTuple):
    """What a sink has done since it was made."""

    messages: int
    transactions: int
    doubts: int
    """How often it was not known whether a transaction was committed, or Kafka gave no answer."""


class KafkaSink:
    """Copies topics of a Kafka cluster into an engine. One thread calls `run`."""

    def __init__(
        self,
        engine: Any,
        servers: str,
        *,
        topics: str | Iterable[str],
        name: str = "sink",
        prefix: str = "",
        batch: int = 1000,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        """`servers` is host:port, several with commas between them. `prefix` comes before the names
        of the topics in Kafka. `batch` is how many messages a transaction has at most. `settings`
        are further ones of librdkafka, such as those for TLS.
        """
        self._engine = engine
        self._topics = [topics] if isinstance(topics, str) else [*topics]
        self._prefix = prefix
        self._batch = batch
        self._at = {"bootstrap.servers": servers, "log_level": 0, **(settings or {})}
        self._owner_mark = f"sink-{name}"
        self._owner = 0
        self._marks: dict[Partition, int | None] = {}
        self._ids: dict[str, bytes] = {}
        self._ends = Event()
        self._doubts = Doubts(self._ends, "the sink will ask how far it is")
        self._messages = self._transactions = 0

    def run(self, *, once: bool = False) -> None:
        """Copy until `stop` is called; with `once` until all is there that is committed in Kafka.

        Raises RelayTakenOver if another sink of the name runs, and RelayError if Kafka does not
        have the topics, or has dropped what was not copied.
        """
        self._claim()
        while not self._ends.is_set():
            try:
                if self._copy(once=once):
                    return
            except (Unsure, OutcomeUnknown) as error:
                self._doubts.wait(error)
            except MarkMoved as error:
                self._check_owner()
                self._doubts.wait(error)

    # --- which sink counts ----------------------------------------------------------------------

    def _claim(self) -> None:
        """Raise the mark of the owner. If the answer is lost, it is raised once more."""
        while True:
            mark = self._engine.mark(self._owner_mark)
            self._owner = 1 if mark is None else mark.value + 1
            try:
                with self._engine.transaction() as tx:
                    tx.mark(self._owner_mark, self._owner, expect=self._owner - 1 or -1)
                return
            except (MarkMoved, OutcomeUnknown):
                continue

    def _check_owner(self) -> None:
        mark = self._engine.mark(self._owner_mark)
        if mark is None or mark.value != self._owner:
            raise RelayTakenOver(
                f"another sink has claimed {self._owner_mark!r}, and copies now. Nothing of the "
                "last transaction of this one is there."
            )

    # --- copying --------------------------------------------------------------------------------

    def _copy(self, *, once: bool) -> bool:
        """Copy until the sink should end. Return False if it has to begin again, because a topic
        has more partitions.
        """
        with explained():
            reader = Consumer(
                {
                    **self._at,
                    "group.id": self._owner_mark,  # the consumer commits nothing to Kafka
                    "isolation.level": "read_committed",
                    "enable.auto.commit": False,
                    "auto.offset.reset": "error",
                    "enable.partition.eof": True,
                }
            )
        with closing(reader):
            parts, looked = self._partitions(reader), monotonic()
            self._make_queues(parts)
            self._begin(reader, parts)
            left = {*parts}
            while not self._ends.is_set():
                with explained():
                    found = reader.consume(self._batch, WAIT_SECONDS)
                left -= {self._part_of(each) for each in found if self._is_end(each)}
                self._write_all([each for each in found if each.error() is None])
                if once and not left:
                    return True
                if monotonic() - looked > LOOK_SECONDS:
                    if self._partitions(reader) != parts:
                        return False
                    looked = monotonic()
        return True

    def _partitions(self, reader: Any) -> list[Partition]:
        """Return the partitions of all topics. Raises RelayError if a topic is missing."""
        found = []
        for topic in self._topics:
            with explained():
                there = patiently(lambda: reader.list_topics(self._prefix + topic, SECONDS))  # noqa: B023
            about = there.topics.get(self._prefix + topic)
            if about is None or not about.partitions:
                raise RelayError(f"Kafka has no topic {self._prefix + topic!r}.")
            found += [Partition(topic, number) for number in sorted(about.partitions)]
        return found

    def _make_queues(self, parts: list[Partition]) -> None:
        """Make the topics that are missing here, and the queues: one for each partition."""
        for topic in self._topics:
            count = sum(part.topic == topic for part in parts)
            queues = len(self._engine.queues(topic))
            if not queues:
                try:
                    self._engine.create_topic(topic, queues=count)
                except TopicExists:
                    queues = len(self._engine.queues(topic))
            if 0 < queues < count:
                self._engine.topic(topic).add_queues(count - queues)

    def _begin(self, reader: Any, parts: list[Partition]) -> None:
        """Ask the marks how far all partitions are, and let the reader go on there."""
        names = [self._prefix + topic for topic in self._topics]
        with explained():
            admin = AdminClient(self._at)  # the client must live until its answers have come
            asked = admin.describe_topics(TopicCollection(names), request_timeout=SECONDS)
            ids = {name: str(each.result().topic_id) for name, each in asked.items()}
        self._ids = {topic: ids[self._prefix + topic].encode() for topic in self._topics}
        marks = self._engine.marks(*(self._mark_of(part) for part in parts))
        self._marks = {}
        places = []
        for part in parts:
            mark = marks.get(self._mark_of(part))
            if mark is not None and mark.data != self._ids[part.topic]:
                raise RelayError(
                    f"the topic {self._prefix + part.topic!r} was deleted in Kafka and made again "
                    "since it was copied, so its offsets mean other messages now. Nothing was "
                    "changed. A sink of another name copies it from its start."
                )
            self._marks[part] = None if mark is None else mark.value
            offset = OFFSET_BEGINNING if mark is None else mark.value
            places.append(TopicPartition(self._prefix + part.topic, part.number, offset))
        with explained():
            reader.assign(places)

    def _part_of(self, message: Any) -> Partition:
        return Partition(message.topic()[len(self._prefix) :], message.partition())

    def _mark_of(self, part: Partition) -> str:
        return f"{self._owner_mark}/{self._prefix}{part.topic}/{part.number}"

    def _is_end(self, message: Any) -> bool:
        """Return whether `message` says that a partition is read to its end. Raises RelayError for
        one that cannot be read.
        """
        error = message.error()
        if error is None:
            return False
        if error.code() in GONE:
            raise RelayError(
                "Kafka has no message at the offset where the sink goes on: its retention has "
                f"dropped what was not copied, or it has lost messages: {error.str()}. Nothing was "
                "changed. A sink of another name copies what is left."
            )
        if error.fatal() or error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            with explained():
                raise KafkaFailed(error)
        return bool(error.code() == KafkaError._PARTITION_EOF)  # others pass, says librdkafka

    def _write_all(self, messages: list[Any]) -> None:
        """Write messages in transactions of a few MB."""
        part: list[Any] = []
        size = 0
        for message in messages:
            size += len(message.value() or b"")
            if part and size > TRANSACTION_BYTES:
                self._write(part)
                part, size = [], len(message.value() or b"")
            part.append(message)
        if part:
            self._write(part)

    def _write(self, messages: list[Any]) -> None:
        """Write messages and the marks behind them in one transaction; in two if it would be
        too large.
        """
        ends = {self._part_of(each): each.offset() + 1 for each in messages}
        try:
            with self._engine.transaction() as tx:
                for message in messages:
                    self._send(tx, message)
                for part, end in ends.items():
                    before = self._marks[part]
                    expected = -1 if before is None else before
                    tx.mark(self._mark_of(part), end, self._ids[part.topic], expect=expected)
                tx.mark(self._owner_mark, self._owner, expect=self._owner)
        except TooLarge as error:
            if len(messages) == 1:
                raise RelayError(
                    f"{_id_of(messages[0])} of Kafka is too large: {error} Nothing behind it was "
                    "copied."
                ) from error
            middle = len(messages) // 2
            self._write(messages[:middle])
            self._write(messages[middle:])
            return
        self._marks |= ends
        self._doubts.are_over()
        self._messages += len(messages)
        self._transactions += 1

    def _send(self, tx: Any, message: Any) -> None:
        headers = {name: _text(value) for name, value in message.headers() or ()}
        if message.value() is None:
            headers["kafka-tombstone"] = "1"
        headers["kafka-id"] = _id_of(message)
        headers["kafka-time"] = str(message.timestamp()[1])
        part, key = self._part_of(message), message.key()
        key = None if key is None else _text(key)
        tx.send(part.topic, message.value() or b"", queue=part.number, key=key, headers=headers)

    def stop(self) -> None:
        """Let `run` return after the present transaction. Any thread may call it."""
        self._ends.set()

    def stats(self) -> SinkStats:
        """Return what the sink has done."""
        return SinkStats(self._messages, self._transactions, self._doubts.count)


def _id_of(message: Any) -> str:
    return f"{message.topic()}/{message.partition()}/{message.offset()}"


def _text(data: bytes | None) -> str:
    r"""Return bytes as text: UTF-8, and other bytes as \xff."""
    return (data or b"").decode("utf-8", "backslashreplace")
