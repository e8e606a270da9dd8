"""A relay into a real Kafka, read by a consumer that sees only what is committed."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from hashlib import sha256
from itertools import count
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

import fmq
from fmq import Engine
from fmq.relay import MessageRefused, Relay, RelayBatch, RelayError, RelayPlace
from fmq.testing import CrashDisk
from fmq.testing.relay import CASES, MessageShown, check_target
from tests.budget import BUDGET

pytest.importorskip("confluent_kafka", reason="no client of Kafka on this machine")

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from fmq.relay.kafka_target import (
    NOT_KNOWN_YET,
    KafkaTarget,
    create_topics,
    make_topics,
    patiently,
    positions_topic,
)
from tests.relay.planted import (
    CAUGHT_BY,
    Planted,
    check_asking_too_early,
    check_planted,
    check_sharing_a_place,
)
from tests.relay.systems import check_event, send_event
from tools.kafka import wrong_jars
from tools.ports import HOST

NUMBERS = count()


def test_jars_of_kafka_that_are_not_the_pinned_ones_are_named(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.jar").write_bytes(name.encode())
    lines = [f"{sha256(name.encode()).hexdigest()}  {name}.jar" for name in ("a", "b", "c")]
    assert wrong_jars(tmp_path, "\n".join(lines)) == []
    (tmp_path / "a.jar").write_bytes(b"other")
    (tmp_path / "b.jar").unlink()
    assert wrong_jars(tmp_path, "\n".join(lines[:2])) == ["a.jar", "b.jar", "c.jar"]


@pytest.fixture
def system(broker: Any) -> Callable[[], Any]:
    class System:
        def __init__(self, **of_topics: str) -> None:
            self.name = f"n{next(NUMBERS)}"
            self.prefix = f"{self.name}-"
            queues = {"a": 1, "b": 1, "t": 2}
            create_topics(broker.servers, self.name, queues, self.prefix, of_topics)

        def target(self) -> KafkaTarget:
            return KafkaTarget(broker.servers, self.name, prefix=self.prefix)

        def shown(self) -> Iterator[MessageShown]:
            for message in self.messages("a", "b"):
                _, topic, queue, offset = headers_of(message)["fmq-id"].split("/")
                yield topic, int(queue), int(offset)

        def messages(self, *topics: str, queue: int = 0) -> list[Any]:
            return read(broker.servers, [self.prefix + topic for topic in topics], queue)

    return System


def headers_of(message: Any) -> dict[str, str]:
    return {name: value.decode() for name, value in message.headers()}


def read(servers: str, topics: list[str], partition: int) -> list[Any]:
    """Return the committed messages of a partition of each topic."""
    settings = {"bootstrap.servers": servers, "group.id": "reader", "enable.partition.eof": True}
    found, ended = [], 0
    with closing(Consumer({**settings, "enable.auto.commit": False})) as consumer:
        consumer.assign([TopicPartition(topic, partition, 0) for topic in topics])
        while ended < len(topics):
            message = consumer.poll(60)
            assert message is not None, "a reader hangs"
            error = message.error()
            if error is None:
                found.append(message)
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended += 1
    return found


# Each case takes seconds; FMQ_BUDGET=2 tries all.
USUAL = ("a crash after a delivery", "a relay that overlaps", "a lost answer")


@pytest.mark.parametrize("case", USUAL if BUDGET <= 1 else [*CASES])
def test_the_kafka_target_keeps_the_rules_of_a_target(system: Callable[[], Any], case: str) -> None:
    check_target(system, only=case)


@pytest.mark.parametrize("kind", CAUGHT_BY)
def test_a_relay_into_kafka_that_lacks_a_rule_is_caught(
    system: Callable[[], Any], kind: type[Planted]
) -> None:
    check_planted(system, kind)


def test_a_relay_into_kafka_that_asks_before_it_claims_is_caught(system: Callable[[], Any]) -> None:
    check_asking_too_early(system)


def test_relays_into_kafka_that_share_a_place_are_caught(system: Callable[[], Any]) -> None:
    check_sharing_a_place(system)


class TrustsStableEnd(KafkaTarget):
    """It reads places up to the first open transaction."""

    END = "read_committed"


def test_a_place_behind_an_open_transaction_is_waited_for(
    system: Callable[[], Any], broker: Any
) -> None:
    """As in a partition that several relays share. Without the wait all is sent again."""
    made = system()
    target, place = made.target(), RelayPlace("store", 7, "t", 0, 0, 0)
    assert target.claim() is None
    other = Producer(
        {"bootstrap.servers": broker.servers, "transactional.id": made.name, "log_level": 0}
    )
    other.init_transactions(30)
    other.begin_transaction()
    other.produce(positions_topic(made.name), b"open", b"other", partition=0)
    assert other.flush(30) == 0
    target.deliver(RelayBatch([], place))
    assert TrustsStableEnd(broker.servers, made.name).status() is None
    with ThreadPoolExecutor(1) as asking:
        found = asking.submit(target.status)
        other.abort_transaction(30)
        assert found.result(60) == place


def relayed(engine: Engine, target: KafkaTarget, **more: Any) -> Relay:
    relay = Relay(engine, target, topics="t", name="n", **more)
    with closing(relay):
        relay.run(once=True)
    return relay


def test_a_cloud_event_is_read_back_from_kafka(
    system: Callable[[], Any], engine: Engine, broker: Any
) -> None:
    made = system()
    send_event(engine)
    target = KafkaTarget(broker.servers, made.name, prefix=made.prefix, cloudevents=True)
    relayed(engine, target)
    (record,) = made.messages("t")
    check_event(headers_of(record), "ce_", engine)


def test_a_record_has_all_that_a_message_has(system: Callable[[], Any], engine: Engine) -> None:
    engine.create_topic("t", queues=2)
    with engine.transaction(tx_id="T") as tx:
        said: dict[str, Any] = {"headers": {"a": "ü"}, "message_id": "m", "tag": "paid"}
        tx.send("t", b"\0body", key="k", queue=1, **said)
    made = system()
    relayed(engine, made.target())
    (record,) = made.messages("t", queue=1)
    (sent,) = engine.read("t", queue=1)
    assert (record.value(), record.key()) == (b"\0body", b"k")
    assert record.timestamp()[1] == sent.origin.time_us // 1000  # type: ignore[union-attr]
    assert headers_of(record) == {
        "fmq-id": f"{engine.feedback.store}/t/1/0",
        "fmq-tx": "T",
        "fmq-tx-count": "1",
        "fmq-tag": "paid",
        "fmq-message-id": "m",
        "a": "ü",
    }


OF_JAVA = {
    "21": -973932308,
    "foobar": -790332482,
    "a-little-bit-long-string": -985981536,
    "a-little-bit-longer-string": -1486304829,
    "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    "abc": 479470107,
}
"""What murmur2 of Kafka's client for Java makes of keys, by its own test (UtilsTest)."""


def test_by_key_a_message_goes_where_the_client_for_java_would_send_it(
    system: Callable[[], Any], engine: Engine, broker: Any
) -> None:
    made, partitions = system(), 7
    create_topics(broker.servers, made.name, {"keyed": partitions}, made.prefix)
    for key in OF_JAVA:
        engine.send_many("keyed", [fmq.Message(b"1", key=key), fmq.Message(b"2", key=key)])
    target = KafkaTarget(broker.servers, made.name, prefix=made.prefix, by_key=True)
    Relay(engine, target, topics="keyed", name="n").run(once=True)
    for key, number in OF_JAVA.items():
        partition = (number & 0x7FFFFFFF) % partitions
        found = made.messages("keyed", queue=partition)
        assert [each.value() for each in found if each.key() == key.encode()] == [b"1", b"2"]


@pytest.mark.parametrize("size", [1_100_000, 990_000])
def test_a_message_that_is_too_large_is_named_or_parked(
    system: Callable[[], Any], size: int
) -> None:
    """The client refuses the first one, and the broker the other one, with its neighbours."""
    made = system(**{"max.message.bytes": "900000"})
    with fmq.open("data", disk=CrashDisk()) as engine:
        for body in (b"before", bytes(size), b"after"):
            engine.send("t", body)
        with pytest.raises(MessageRefused, match="t/0 offset 1 is refused by the target"):
            relayed(engine, made.target())
        assert made.messages("t") == []
        relay = relayed(engine, made.target(), on_refused="park")
        assert [record.value() for record in made.messages("t")] == [b"before", b"", b"after"]
        assert "fmq-parked" in headers_of(made.messages("t")[1])
        (letter,) = engine.dead_letters("relay-n").list()
        assert (letter.offset, len(letter.body), relay.stats().lag) == (1, size, 0)


def test_missing_topics_are_named(broker: Any, engine: Engine) -> None:
    engine.send("t", b"x")
    with pytest.raises(RelayError, match="create_topics makes them"):
        relayed(engine, KafkaTarget(broker.servers, "nobody"))


def until_shown(is_shown: Callable[[], bool]) -> None:
    ends = monotonic() + 60
    while not is_shown():
        assert monotonic() < ends


def test_a_broker_that_does_not_know_a_new_topic_yet_is_asked_again() -> None:
    codes = iter(NOT_KNOWN_YET)

    def ask() -> str:
        for code in codes:
            raise KafkaException(KafkaError(code))
        return "known"

    assert patiently(ask) == "known"


def test_a_broker_that_does_not_answer_makes_no_topic() -> None:
    """The error says which one. Method: the broker only listens."""
    with socket.create_server((HOST, 0)) as silent:
        where = f"{HOST}:{silent.getsockname()[1]}"
        admin = AdminClient({"bootstrap.servers": where, "log_level": 0})
        with pytest.raises(RelayError, match=r"'orders'.*Timed out"):
            make_topics(admin, [NewTopic("orders", 1, -1)], seconds=0.3)


def test_a_broker_that_dies_is_a_doubt(
    system: Callable[[], Any], engine: Engine, broker: Any
) -> None:
    """The relay goes on when the broker is there again; a batch is there once."""
    made = system()
    for number in range(10):
        engine.send("t", b"%d" % number)

    class Dies(KafkaTarget):
        deaths = 1

        def deliver(self, batch: RelayBatch) -> None:
            super().deliver(batch)
            if self.deaths:
                self.deaths -= 1
                # Kafka commits first, and tells the partitions behind it. A broker that is killed
                # in between may leave them as they are: see docs/relay.md.
                until_shown(lambda: self.status() == batch.place)
                until_shown(lambda: len(made.messages("t")) == len(batch.messages))
                broker.stop()
                broker.start()
                raise fmq.relay.Unsure("the broker is gone")

    relay = relayed(engine, Dies(broker.servers, made.name, prefix=made.prefix))
    assert relay.stats().claims >= 2
    assert [record.value() for record in made.messages("t")] == [b"%d" % n for n in range(10)]
