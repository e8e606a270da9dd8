"""Dropping messages that are older than the retention of their own topic."""

from __future__ import annotations

import logging

from fmq.consume.administration.change_plans import Changes, Plan
from fmq.errors import BadName
from fmq.store.bytes.kinds import Changed, ChangeKind, QueuePlace
from fmq.tx.ledger.queues import Topic

logger = logging.getLogger("fmq.groups")


def trim_topics(changes: Changes) -> None:
    """Drop what is too old in each topic that has a retention of its own."""
    now_us = changes.writer.clock.time_us()
    for topic in [*changes.ledger.topics.values()]:
        if topic.retain_ms:
            _trim(changes, topic, now_us - topic.retain_ms * 1000)


def _trim(changes: Changes, topic: Topic, until_us: int) -> None:
    known = [*changes.ledger.subscriptions.values()]
    groups = [each for each in known if each.topic == topic.name]
    before = [each.lost for each in groups]
    try:
        changes.write(_trimming, topic, until_us)
    except BadName:
        return  # the topic was made again meanwhile, with fewer queues
    for each, lost in zip(groups, before, strict=True):
        if each.lost > lost:
            logger.warning(
                "the group %r has lost %s messages of the topic %r, which it had not acked: "
                "the topic's own retention waits for no group",
                *(each.group, f"{each.lost - lost:,}", topic.name),
            )


def _trimming(changes: Changes, topic: Topic, until_us: int) -> Plan:
    find = changes.messages.offset_at
    first = {each.number: find(topic.name, each.number, until_us) for each in topic.queues}

    def plan() -> list[Changed]:
        if changes.ledger.topics.get(topic.name) is not topic:
            return []  # the topic was deleted meanwhile, and perhaps made again
        places = [
            QueuePlace(queue.number, first[queue.number])
            for queue in topic.queues
            if queue.first < first.get(queue.number, 0)
        ]
        return [Changed(ChangeKind.TRIM, "", topic.name, places)] if places else []

    return plan
