"""A relay into Kafka: a batch and its place are one Kafka transaction.

A consumer with `isolation.level=read_committed` sees each message once, and none of a batch that
was cut off. With read_uncommitted, which is the default of Kafka's own client for Java, it sees
what was aborted, too. Kafka does not show all partitions of a transaction at one instant.

The place is in the topic `fmq-positions-NAME`, of one partition and of this relay alone. Groups of
Kafka are forgotten when nobody asks for them for a week.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from time import monotonic, sleep
from typing import Any, TypeVar, Unpack

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka import KafkaException as KafkaFailed
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from fmq.relay.envelope import Envelope, EnvelopeShape
from fmq.relay.relay_errors import MessageRefused, RelayError, RelayTakenOver, Unsure
from fmq.relay.target import RelayBatch, RelayPlace

T = TypeVar("T")
SECONDS = 30  # how long a call of the broker may take until the relay is in doubt
TRANSACTION_SECONDS = 20  # for how long Kafka leaves a transaction of a relay open
KNOWN_TRIES = 50  # so often a broker may not know a new topic, or where to put it: for 5 s
PLACE_KEY = b"place"
SHUT_OUT = KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED
MISSING = (
    *(KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC),
    KafkaError._UNKNOWN_PARTITION,
)
REFUSALS = KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_RECORD
# A broker that was silent for a moment counts as no place for a topic until it is heard again.
NOT_KNOWN_YET = (*MISSING, KafkaError.INVALID_REPLICATION_FACTOR)
# Errors of a topic that was made just now, or whose broker was started again, or is slow.
PASSING = (
    *(KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE),
    *(KafkaError._TIMED_OUT, KafkaError.REQUEST_TIMED_OUT),
)


def positions_topic(name: str) -> str:
    """Return the topic in which the relay `name` keeps its place."""
    return f"fmq-positions-{name}"


def create_topics(
    servers: str,
    name: str,
    queues: Mapping[str, int],
    prefix: str = "",
    settings: Mapping[str, str] | None = None,
) -> None:
    """Make the topics of the relay `name`, if they do not exist: with a partition for each queue
    and these `settings`. Make the topic for its place, too.
    """
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    config = dict(settings or {})
    wanted = [NewTopic(prefix + topic, n, -1, config=config) for topic, n in queues.items()]
    wanted.append(NewTopic(positions_topic(name), 1, -1, config={"cleanup.policy": "compact"}))
    make_topics(admin, wanted)


def make_topics(admin: AdminClient, wanted: list[NewTopic], seconds: float = SECONDS) -> None:
    """Make topics that may be there, and wait until they are shown. A broker that does not answer
    is asked again for a while.
    """
    ends = monotonic() + seconds

    def make() -> None:
        asked = admin.create_topics(wanted, request_timeout=seconds / 3)
        for topic, made in asked.items():
            try:
                made.result()
            except KafkaFailed as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise KafkaFailed(error.args[0], topic) from error

    try:
        patiently(make, seconds)
    except KafkaFailed as error:
        what, topic = error.args
        raise RelayError(f"Kafka makes no topic {topic!r}: {what.str()}") from error
    with explained():
        while not _are_shown(admin, {each.topic for each in wanted}):
            if monotonic() > ends:
                raise Unsure("Kafka has made the topics, and does not show them yet")
            sleep(0.05)


def _are_shown(admin: AdminClient, topics: set[str]) -> bool:
    shown = patiently(lambda: admin.list_topics(timeout=SECONDS)).topics
    return all(
        topic in shown and shown[topic].partitions and not shown[topic].error for topic in topics
    )


class KafkaTarget:
    """Topics of a Kafka cluster, for the relay `name`."""

    atomic = True
    END = "read_uncommitted"
    """The end of all places, and not only of those that are committed: an open transaction of
    another producer would hide the place behind it."""

    def __init__(
        self,
        servers: str,
        name: str = "relay",
        *,
        by_key: bool = False,
        settings: Mapping[str, Any] | None = None,
        **shape: Unpack[EnvelopeShape],
    ) -> None:
        """`servers` is host:port, several with commas between them. The partition has the number of
        the queue; with `by_key` it is that which Kafka's client for Java would choose for the key.
        `settings` are further settings of librdkafka, such as those for TLS.
        """
        self._at = {"bootstrap.servers": servers, "log_level": 0, **(settings or {})}
        self._name = name
        self._envelope = Envelope(**shape)
        self._by_key = by_key
        self._producer: Producer | None = None
        self._failed: dict[tuple[str, bytes], str] = {}

    def claim(self) -> RelayPlace | None:
        """Make a producer with the id of the relay, which shuts out the one before it, and read the
        place.
        """
        self._producer = None  # messages that it has not sent are dropped, too
        producer = Producer(
            {
                **self._at,
                "transactional.id": f"fmq-relay-{self._name}",
                "transaction.timeout.ms": 1000 * TRANSACTION_SECONDS,
                "linger.ms": 5,
                "partitioner": "murmur2_random",
                "delivery.report.only.error": True,
                "on_delivery": self._report,
            }
        )
        with explained():
            patiently(lambda: producer.init_transactions(SECONDS))
        self._producer = producer
        return self.status()

    def deliver(self, batch: RelayBatch) -> None:
        """Produce the messages and the place in one transaction."""
        producer = self._producer
        assert producer is not None, "it was claimed"
        self._failed.clear()
        try:
            with explained():
                producer.begin_transaction()
                # The place comes first: all partitions are added to the transaction together.
                producer.produce(
                    positions_topic(self._name), batch.place.text().encode(), PLACE_KEY, partition=0
                )
                self._produce(producer, batch)
                producer.commit_transaction(2 * SECONDS)
        except RelayError as error:
            if self._failed and not isinstance(error, RelayTakenOver):
                self._blame(batch)
            raise

    def _produce(self, producer: Producer, batch: RelayBatch) -> None:
        for topic, origin, messages, headers in self._envelope.runs(
            batch, bare=True, attributes="ce_"
        ):
            partition = -1 if self._by_key else origin.queue
            rest = partition, None, None, origin.time_us // 1000
            for message, said in zip(messages, headers, strict=True):
                while True:
                    try:
                        producer.produce(topic, message.body, message.key, *rest, said)  # type: ignore[arg-type]
                        break
                    except BufferError:
                        producer.poll(0.05)
                    except KafkaFailed as error:
                        if error.args[0].code() not in REFUSALS:
                            raise
                        producer.abort_transaction(SECONDS)
                        raise MessageRefused(message, error.args[0].str()) from error

    def _report(self, error: KafkaError, message: Any) -> None:
        if error.code() in REFUSALS:
            self._failed[message.topic(), message.value()] = error.str()

    def _blame(self, batch: RelayBatch) -> None:
        """Raise MessageRefused for the first message that the broker refuses.

        It refuses a whole request of several messages. So each of them is tried alone, in a
        transaction that is not committed.
        """
        suspects = {*self._failed}
        for message in batch.messages:
            if (self._envelope.name(message.topic or ""), message.body) in suspects:
                self.claim()
                assert self._producer is not None, "it was claimed"
                self._failed.clear()
                with explained():
                    self._producer.begin_transaction()
                    self._produce(self._producer, batch._replace(messages=[message]))
                    self._producer.flush(SECONDS)
                if self._failed:
                    raise MessageRefused(message, *self._failed.values())

    def status(self) -> RelayPlace | None:
        """Return the place that Kafka keeps, after reading its topic to the end that it has now."""
        part = TopicPartition(positions_topic(self._name), 0, OFFSET_BEGINNING)
        group = {"group.id": f"fmq-relay-{self._name}", "enable.auto.commit": False}
        loose = Consumer({**self._at, **group, "isolation.level": self.END})
        with explained(), closing(loose):
            _, end = patiently(lambda: loose.get_watermark_offsets(part, timeout=SECONDS))
        found, ends = None, monotonic() + SECONDS
        reader = Consumer({**self._at, **group, "enable.partition.eof": True})
        with explained(), closing(reader):
            reader.assign([part])
            while monotonic() < ends:
                message = reader.poll(1)
                error = None if message is None else message.error()
                if message is None or error is not None:
                    if error is not None and error.code() != KafkaError._PARTITION_EOF:
                        raise KafkaFailed(error)
                    if message is not None and (message.offset() or 0) >= end:
                        return found
                elif (value := message.value()) is not None:
                    found = RelayPlace.of_text(value.decode())
        raise Unsure("the place could not be read to its end: a transaction is still open there")

    def close(self) -> None:
        """Drop the producer."""
        self._producer = None


def patiently(call: Callable[[], T], seconds: float = SECONDS) -> T:
    """Return what `call` returns, and repeat it for a while where Kafka says that this helps, and
    a few times where it may not know a topic or a broker yet.
    """
    ends, tries = monotonic() + seconds, KNOWN_TRIES
    while True:
        try:
            return call()
        except KafkaFailed as error:
            what = error.args[0]
            passes = what.retriable() or what.code() in PASSING
            tries -= what.code() in NOT_KNOWN_YET
            may_be_known = what.code() in NOT_KNOWN_YET and tries > 0
            if what.fatal() or not (may_be_known or (passes and monotonic() < ends)):
                raise
            sleep(0.1)


@contextmanager
def explained() -> Iterator[None]:
    """Raise errors of the client as those of a relay."""
    try:
        yield
    except (KafkaFailed, SystemError) as error:
        # The client raises a fatal error also in front of callbacks, which end in a SystemError.
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, KafkaFailed):
            cause = cause.__cause__
        if cause is None:
            raise
        what = cause.args[0]
        if what.code() in SHUT_OUT:
            raise RelayTakenOver(
                "another relay of this name has claimed Kafka, or this one was stopped for more "
                f"than {TRANSACTION_SECONDS} s within a batch: {what.str()}. Nothing of the last "
                "batch of this one is there."
            ) from error
        if what.code() in MISSING:
            raise RelayError(
                f"a topic or partition is missing in Kafka: {what.str()}. Nothing was copied. "
                "`fmq relay --create` or create_topics makes them."
            ) from error
        raise Unsure(f"Kafka gave no answer: {what.name()} {what.str()}") from error
