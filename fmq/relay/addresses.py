"""Targets and sinks by address: which one `kafka://host:9092` means."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Unpack

from fmq.errors import BadOption, ExtraMissing
from fmq.relay.envelope import Envelope, EnvelopeShape
from fmq.relay.target import RelayTarget

if TYPE_CHECKING:
    from fmq.relay.kafka_sink import KafkaSink

KAFKA, POSTGRES = "kafka://", ("postgresql://", "postgres://")
PGMQ = "pgmq://"
NATS = "nats://", "tls://"
REDIS = "redis://", "rediss://", "unix://"
RABBITMQ = "rabbitmq-stream://"
AMQP = "amqp://", "amqps://"
HTTP = "http://", "https://"
SQS = "sqs://"
PACKAGES = "fmq.targets"
"""The entry points of packages with targets, by the scheme of their addresses."""
SECRET = "FMQ_RELAY_SECRET"
"""The environment variable with the secret that signs what a web service gets."""


def target_at(
    address: str,
    name: str,
    queues: Mapping[str, int],
    *,
    create: bool = False,
    by_key: bool = False,
    tries: int | None = None,
    engine: Any = None,
    **shape: Unpack[EnvelopeShape],
) -> RelayTarget:
    """Return the target at `address` for the relay `name`. With `create`, make there what topics
    with so many `queues` need. `by_key` is for Kafka and SQS, and `tries` for a web service.
    `shape` says what messages become there. A web service, queues of RabbitMQ, SQS and RocketMQ
    need the `engine`, which keeps their place.

    Raises BadOption for an address of nothing that is known, and ExtraMissing.
    """
    if by_key and not address.startswith((KAFKA, SQS)):
        raise BadOption(f"{address!r}: only Kafka and SQS order by key. Nothing was changed.")
    if tries is not None and not address.startswith(HTTP):
        raise BadOption(
            f"{address!r}: only for a web service tries are counted. Nothing was changed."
        )
    there = {Envelope(**shape).name(topic): count for topic, count in queues.items()}
    if address.startswith(KAFKA):
        with needed("Kafka", "confluent-kafka", "kafka"):
            from fmq.relay import kafka_target
        servers = address.removeprefix(KAFKA)
        if create:
            kafka_target.create_topics(servers, name, there)
        return kafka_target.KafkaTarget(servers, name, by_key=by_key, **shape)
    if address.startswith(POSTGRES):
        with needed("PostgreSQL", "psycopg", "postgres"):
            from fmq.relay import postgres_target
        if shape.get("prefix") or shape.get("cloudevents"):
            raise BadOption(
                "no prefix and no CloudEvents for PostgreSQL: fmq_relayed has columns for all that "
                "a message has. Nothing was changed."
            )
        if create:
            postgres_target.create_tables(address)
        return postgres_target.PostgresTarget(address, name, names=shape.get("names"))
    if address.startswith(PGMQ):
        with needed("PostgreSQL", "psycopg", "postgres"):
            from fmq.relay import pgmq_target
        conninfo = address.replace(PGMQ, POSTGRES[0], 1)
        if create:
            pgmq_target.create_queues(conninfo, there)
        return pgmq_target.PgmqTarget(conninfo, name, **shape)
    if address.startswith(NATS):
        with needed("NATS", "nats-py", "nats"):
            from fmq.relay import nats_target
        if create:
            nats_target.create_stream(address, name, there)
        return nats_target.NatsTarget(address, name, **shape)
    if address.startswith(REDIS):
        with needed("Redis", "redis", "redis"):
            from fmq.relay import redis_target
        return redis_target.RedisTarget(address, name, **shape)
    if address.startswith(RABBITMQ):
        with needed("RabbitMQ", "rstream", "rabbitmq"):
            from fmq.relay import rabbitmq_target
        if create:
            rabbitmq_target.create_stream(address, name)
        return rabbitmq_target.RabbitStreamTarget(address, name, **shape)
    if address.startswith((*AMQP, *HTTP, SQS)) and engine is None:
        raise BadOption(f"{address!r}: it needs the engine, which keeps its place.")
    if address.startswith(AMQP):
        with needed("RabbitMQ", "aio-pika", "rabbitmq"):
            from fmq.relay import rabbitmq_queues
        if create:
            rabbitmq_queues.create_queues(address, there)
        return rabbitmq_queues.RabbitQueuesTarget(engine, address, name, **shape)
    if address.startswith(SQS):
        with needed("SQS", "boto3", "sqs"):
            from fmq.relay import sqs_target
        if create:
            sqs_target.create_queues(address, there)
        return sqs_target.SqsTarget(engine, address, name, by_key=by_key, **shape)
    if address.startswith(HTTP):
        # Imported here, as the other targets are: each verb of the command loads this module.
        from fmq.relay.http_target import HttpTarget

        secret = os.environ.get(SECRET, "").encode()
        return HttpTarget(engine, address, name, secret=secret, tries=tries, **shape)
    from importlib.metadata import entry_points  # imported here: it is slow, and few need it

    scheme = address.partition("://")[0]
    for found in entry_points(group=PACKAGES, name=scheme):
        made: RelayTarget = found.load()(engine, address, name, **shape)
        return made
    if scheme in ("rocketmq", "rocketmqs"):
        raise BadOption(
            "a relay into RocketMQ needs the package fmq-rocketmq, which is not installed here: "
            "pip install fmq-rocketmq. Nothing was changed."
        )
    raise BadOption(
        f"{address!r}: a relay copies to kafka://HOST:PORT, nats://HOST:PORT, redis://HOST:PORT, "
        "rabbitmq-stream://HOST, amqp://HOST, postgresql://HOST/DATABASE, pgmq://HOST/DATABASE, "
        "https://HOST/PATH, sqs://REGION or rocketmq://HOST:PORT. Other systems need a class of "
        "four methods, see docs/relay.md. Nothing was changed."
    )


@contextmanager
def needed(system: str, package: str, extra: str) -> Iterator[None]:
    """Name the extra that is missing."""
    try:
        yield
    except ImportError as error:
        raise ExtraMissing(f"a relay into {system}", package, extra) from error


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
