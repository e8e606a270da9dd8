"""How many of the messages that a group has not acked its filter lets through.

No number in memory says that: the heads of the messages are read for it.
"""

from __future__ import annotations

from fmq.consume.groups.sieve import filter_of
from fmq.errors import FmqError
from fmq.tx.looks.messages import Messages

LOOKED_AT = 4096  # messages of a topic that one look compares with the filter


def passing(messages: Messages, group: str, topic: str) -> list[list[int]]:
    """Return for each queue with messages that `group` has not acked: its number, how many of them
    were looked at, and how many of these pass the group's filter of `topic`.

    It looks at the oldest LOOKED_AT, queue by queue, and in a queue not beyond a message that
    cannot be read.
    """
    subscription = messages.ledger.subscriptions.get((group, topic))
    if subscription is None or not subscription.filter:
        return []
    matches = filter_of(subscription.filter).matches_message
    found: dict[int, list[int]] = {}
    left = LOOKED_AT
    for number, first, end in messages.unacked(group, topic, LOOKED_AT):
        row = found.setdefault(number, [number, 0, 0])
        queue = messages.ledger.queue(topic, number)
        end = min(end, first + left)
        if queue is None:
            continue  # the topic was deleted meanwhile
        try:
            while first < end:
                for carried in messages.carried(queue, first, end - first):
                    row[1] += carried.messages
                    row[2] += sum(matches(*look) for look in carried.looks())
                    left -= carried.messages
                    first = carried.first + carried.messages
        except (FmqError, OSError):
            continue
    return [*found.values()]
