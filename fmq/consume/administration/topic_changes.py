"""Making, growing and deleting topics. Each function returns the plan of its change."""

from __future__ import annotations

import logging
from typing import Any

from fmq.arguments.names import check_count, check_name, check_seconds
from fmq.arguments.options import QUEUES_MAX, SECONDS_MAX
from fmq.basics.results import TopicCodec
from fmq.codecs.agreement import check_stored, must_store
from fmq.consume.administration.change_plans import Changes, Plan
from fmq.errors import BadOption, FmqError, TooMany, TopicExists, TopicInUse
from fmq.store.bytes.kinds import Changed, ChangeKind, TopicMade
from fmq.tx.said.codec_met import codec_text

logger = logging.getLogger("fmq.topics")


def make_topic(
    changes: Changes, topic: str, queues: int | None, retain_seconds: float | None
) -> Plan:
    """Make `topic` with this many queues. None: as many as the options say. Raises
    TopicExists.
    """
    topic, count = check_name("topic", topic), changes.writer.options.queues_of(topic)
    if queues is not None:
        count = _check_queues(check_count("queues", queues))
    retain_ms = _retain_ms(retain_seconds)

    def plan() -> list[Any]:
        if topic in changes.ledger.topics:
            raise TopicExists(topic)
        retains = [Changed(ChangeKind.RETAIN, "", topic, value=retain_ms)] if retain_ms else []
        return [TopicMade(topic, count, 0), *retains]

    return plan


def add_queues(changes: Changes, topic: str, count: int) -> Plan:
    """Give `topic` `count` more queues. Raises UnknownTopic."""
    count = check_count("count", count)

    def plan() -> list[Any]:
        queues = _check_queues(len(changes.topic(topic).queues) + count)
        return [Changed(ChangeKind.ADD_QUEUES, "", topic, value=queues)]

    return plan


def retain(changes: Changes, topic: str, seconds: float | None) -> Plan:
    """Set how long the messages of `topic` are kept, in seconds. None: as the options say."""
    retain_ms = _retain_ms(seconds)

    def plan() -> list[Any]:
        changes.topic(topic)
        return [Changed(ChangeKind.RETAIN, "", topic, value=retain_ms)]

    return plan


def set_codec(
    changes: Changes, topic: str, name: str, version: int, fields: dict[str, str] | None
) -> Plan:
    """Store how the bodies of `topic` are made, and make the topic if it does not exist. A version
    below the stored one changes nothing: its bodies are old ones. Raises CodecDiffers.
    """
    topic, count = check_name("topic", topic), changes.writer.options.queues_of(topic)
    wanted = check_stored(TopicCodec(name, version, fields))

    def plan() -> list[Any]:
        known = changes.ledger.topics.get(topic)
        if known is not None and not must_store(topic, wanted, known.codec):
            return []
        made = [] if known is not None else [TopicMade(topic, count, 0)]
        return [*made, Changed(ChangeKind.CODEC, "", topic, text=codec_text(wanted))]

    return plan


def delete_topic(changes: Changes, topic: str) -> Plan:
    """Delete `topic` with its messages. Its groups stay. If the topic is made again, they begin
    anew.

    Raises UnknownTopic, or TopicInUse if an undecided transaction writes to it.
    """

    def plan() -> list[Any]:
        known = changes.topic(topic)
        for entry in changes.ledger.undecided.values():
            if any(run.topic == topic for run in entry.runs):
                raise TopicInUse(topic, entry.prepare.tx_id)
        for group, taken in changes.ledger.subscriptions:
            if taken == topic:
                for queue in known.queues:
                    changes.check_decided(group, topic, queue.number)
        return [Changed(ChangeKind.DELETE_TOPIC, "", topic)]

    return plan


def grow_topics(changes: Changes) -> None:
    """Give topics more queues where they have fewer than the options say."""
    for topic, wanted in changes.writer.options.topic_queues.items():
        known = changes.ledger.topics.get(topic)
        if known is not None and len(known.queues) < wanted:
            try:
                changes.write(add_queues, topic, wanted - len(known.queues))
            except FmqError as error:
                logger.warning("the topic %r gets no more queues for now: %s", topic, error)
        elif known is not None and len(known.queues) > wanted:
            logger.warning(
                "the topic %r has %s queues, and the options name %s: none is taken away",
                *(topic, len(known.queues), wanted),
            )


def _check_queues(count: int) -> int:
    if count > QUEUES_MAX:
        raise TooMany("queues", count, QUEUES_MAX, "fixed by fmq", "use more topics")
    return count


def _retain_ms(seconds: float | None) -> int:
    if seconds is None:
        return 0
    seconds = check_seconds("retain_seconds", seconds)
    if not 0.001 <= seconds <= SECONDS_MAX:
        raise BadOption(
            f"retain_seconds={seconds:g}: must be a millisecond at least, and at most a hundred "
            "years. Nothing was changed."
        )
    return round(seconds * 1000)
