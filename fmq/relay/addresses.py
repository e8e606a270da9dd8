"""Targets and sinks by address: which one `kafka://host:9092` means."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fmq.errors import BadOption, ExtraMissing
from fmq.relay.target import RelayTarget

if TYPE_CHECKING:
    from fmq.relay.kafka_sink import KafkaSink

KAFKA, POSTGRES = "kafka://", ("postgresql://", "postgres://")
NATS = "nats://", "tls://"
REDIS = "redis://", "rediss://", "unix://"
RABBITMQ = "rabbitmq-stream://"
AMQP = "amqp://", "amqps://"
HTTP = "http://", "https://"
SECRET = "FMQ_RELAY_SECRET"
"""The environment variable with the secret that signs what a web service gets."""


def target_at(
    address: str,
    name: str,
    queues: Mapping[str, int],
    *,
    create: bool = False,
    prefix: str = "",
    engine: Any = None,
) -> RelayTarget:
    """Return the target at `address` for the relay `name`. With `create`, make there what topics
    with so many `queues` need. `prefix` comes before the names of Kafka's topics, the subjects of
    NATS, RabbitMQ's routing keys and the streams of Redis. A web service and queues of RabbitMQ
    need the `engine`, which keeps their place.

    Raises BadOption for an address of nothing that is known, and ExtraMissing.
    """
    if address.startswith(KAFKA):
        try:
            from fmq.relay import kafka_target
        except ImportError as error:
            raise ExtraMissing("a relay into Kafka", "confluent-kafka", "kafka") from error
        servers = address.removeprefix(KAFKA)
        if create:
            kafka_target.create_topics(servers, name, queues, prefix)
        return kafka_target.KafkaTarget(servers, name, prefix=prefix)
    if address.startswith(POSTGRES):
        try:
            from fmq.relay import postgres_target
        except ImportError as error:
            raise ExtraMissing("a relay into PostgreSQL", "psycopg", "postgres") from error
        if prefix:
            raise BadOption(
                f"prefix={prefix!r}: only topics of Kafka, subjects of NATS and streams of Redis "
                "get one; fmq_relayed has a column for the topic. Nothing was changed."
            )
        if create:
            postgres_target.create_tables(address)
        return postgres_target.PostgresTarget(address, name)
    if address.startswith(NATS):
        try:
            from fmq.relay import nats_target
        except ImportError as error:
            raise ExtraMissing("a relay into NATS", "nats-py", "nats") from error
        if create:
            nats_target.create_stream(address, name, queues, prefix)
        return nats_target.NatsTarget(address, name, prefix=prefix)
    if address.startswith(REDIS):
        try:
            from fmq.relay import redis_target
        except ImportError as error:
            raise ExtraMissing("a relay into Redis", "redis", "redis") from error
        return redis_target.RedisTarget(address, name, prefix=prefix)
    if address.startswith(RABBITMQ):
        try:
            from fmq.relay import rabbitmq_target
        except ImportError as error:
            raise ExtraMissing("a relay into RabbitMQ", "rstream", "rabbitmq") from error
        if create:
            rabbitmq_target.create_stream(address, name)
        return rabbitmq_target.RabbitStreamTarget(address, name, prefix=prefix)
    if address.startswith(AMQP):
        try:
            from fmq.relay import rabbitmq_queues
        except ImportError as error:
            raise ExtraMissing("a relay into RabbitMQ", "aio-pika", "rabbitmq") from error
        if create:
            rabbitmq_queues.create_queues(address, queues, prefix)
        return rabbitmq_queues.RabbitQueuesTarget(engine, address, name, prefix=prefix)
    if address.startswith(HTTP):
        if engine is None or prefix:
            raise BadOption(
                f"{address!r}: a web service takes no prefix, and needs the engine, which keeps "
                "its place. Nothing was changed."
            )
        # Imported here, as the other targets are: each verb of the command loads this module.
        from fmq.relay.http_target import HttpTarget

        secret = os.environ.get(SECRET, "").encode()
        return HttpTarget(engine, address, name, secret=secret)
    raise BadOption(
        f"{address!r}: a relay copies to kafka://HOST:PORT, nats://HOST:PORT, redis://HOST:PORT, "
        "rabbitmq-stream://HOST, amqp://HOST, postgresql://HOST/DATABASE or https://HOST/PATH. "
        "Other systems need a class of four methods, see docs/relay.md. Nothing was changed."
    )


def sink_of(engine: Any, address: str, **how: Any) -> KafkaSink:
    """Return the sink that copies from `address` into `engine`. Raises BadOption or
    ExtraMissing.
    """
    if not address.startswith(KAFKA):
        raise BadOption(f"{address!r}: a sink copies from kafka://HOST:PORT. Nothing was changed.")
    try:
        from fmq.relay.kafka_sink import KafkaSink
    except ImportError as error:
        raise ExtraMissing("a sink from Kafka", "confluent-kafka", "kafka") from error
    return KafkaSink(engine, address.removeprefix(KAFKA), **how)
