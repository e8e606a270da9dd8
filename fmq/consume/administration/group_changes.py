"""Making, moving, pausing and deleting groups. Each function returns the plan of its change."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from fmq.arguments.names import check_count, check_name
from fmq.consume.administration.change_plans import At, Changes, Plan, check_end
from fmq.consume.groups.sieve import check_filter
from fmq.errors import GroupExists, OffsetBeyond, OffsetGone
from fmq.store.bytes.content import text_bytes
from fmq.store.bytes.kinds import AckRange, Acks, Changed, ChangeKind, QueuePlace
from fmq.tx.commands.limits import REASON_BYTES_MAX
from fmq.tx.ledger.dead_changes import topics_of
from fmq.tx.ledger.queues import Queue


def make(changes: Changes, group: str, topic: str, at: At, exist_ok: bool, wanted: str) -> Plan:
    """Make a group of `topic` that begins at the place `at` and has the filter `wanted`. With
    `exist_ok`, change nothing if it exists with this filter.

    Raises GroupExists, FilterDiffers, OffsetBeyond, BadOption or TypeError.
    """
    group, topic = check_name("group", group), check_name("topic", topic)
    find = changes.finder(topic, at)

    def plan() -> list[Any]:
        known = changes.ledger.subscriptions.get((group, topic))
        if known is not None:
            if not exist_ok:
                raise GroupExists(group, topic)
            check_filter(group, topic, known.filter, wanted)
            return []
        places = [QueuePlace(queue.number, find(queue)) for queue in changes.queues(topic)]
        return [Changed(ChangeKind.MAKE_GROUP, group, topic, places, text=wanted)]

    return plan


def join(
    changes: Changes,
    group: str,
    topics: Iterable[str],
    wanted: str | None = None,
    *,
    at_end: bool = False,
) -> Plan:
    """Subscribe the group to each of `topics` that it does not take from yet. There the group
    begins at the earliest message, or with `at_end` after the newest.

    Its filter is `wanted`. Raises FilterDiffers if the group exists and has another filter;
    None fits any.
    """
    known, topics = changes.ledger.subscriptions, [*topics]

    def plan() -> list[Any]:
        new = [topic for topic in topics if (group, topic) not in known]
        for topic in topics:
            if topic not in new:
                check_filter(group, topic, known[group, topic].filter, wanted)
        text = wanted or ""
        return [
            Changed(ChangeKind.MAKE_GROUP, group, topic, ends(topic), text=text) for topic in new
        ]

    def ends(topic: str) -> list[QueuePlace]:
        if not at_end:
            return []
        return [QueuePlace(each.number, each.end) for each in changes.queues(topic)]

    return plan


def set_filter(changes: Changes, group: str, topic: str, wanted: str) -> Plan:
    """Give `group` another filter for `topic` from now on."""

    def plan() -> list[Any]:
        changes.check_group(group, topic)
        return [Changed(ChangeKind.FILTER, group, topic, text=wanted)]

    return plan


def seek(changes: Changes, group: str, topic: str, number: int | None, at: At) -> Plan:
    """Let `group` go on at the place `at`, in one queue of `topic` or in all of them.

    Messages from there on are redelivered even if they were acked.
    """
    if number is not None:
        number = check_count("queue", number, 0)
    find = changes.finder(topic, at)

    def plan() -> list[Any]:
        changes.check_group(group, topic)
        changes.check_decided(group, topic, number)
        queues = changes.queues_with(topic, number, at)
        places = [QueuePlace(queue.number, find(queue)) for queue in queues]
        return [Changed(ChangeKind.SEEK, group, topic, places)]

    return plan


def skip(changes: Changes, group: str, topic: str, number: int, offset: int, count: int) -> Plan:
    """Let `group` pass over `count` messages from `offset` on."""
    number, offset = check_count("queue", number, 0), check_count("offset", offset, 0)
    count = check_count("count", count)

    def plan() -> list[Any]:
        changes.check_group(group, topic)
        changes.check_decided(group, topic, number, offset, offset + count)
        (queue,) = changes.queues(topic, number)
        check_end(queue, offset + count)
        return [Changed(ChangeKind.SKIP, group, topic, [QueuePlace(number, offset)], count)]

    return plan


def ack_below(changes: Changes, group: str, topic: str, number: int, offset: int) -> Plan:
    """Ack for `group` all messages of a queue below `offset` that it has not acked."""
    number, offset = check_count("queue", number, 0), check_count("offset", offset, 0)

    def plan() -> list[Any]:
        changes.check_group(group, topic)
        (queue,) = changes.queues(topic, number)
        check_end(queue, offset)
        acked = changes.ledger.acked_of(group, topic, number)
        gaps = acked.gaps(queue.first, offset)  # the ranges that the group has not acked
        ranges = [AckRange(group, topic, number, *gap) for gap in gaps]
        if ranges:
            changes.check_decided(group, topic, number, ranges[0].first, offset)
        # The first record may get the request of a client, and has one range then.
        return [Acks(part, 0) for part in (ranges[:1], ranges[1:]) if part]

    return plan


def reject(changes: Changes, group: str, topic: str, number: int, offset: int, reason: str) -> Plan:
    """Make a dead letter of one message of a queue for `group`, and ack it. If the group has acked
    it already, change nothing.

    Raises OffsetBeyond, OffsetGone or TooLarge, or the errors of reading.
    """
    number, offset = check_count("queue", number, 0), check_count("offset", offset, 0)

    def wanted() -> Queue | None:
        changes.check_group(group, topic)
        (queue,) = changes.queues(topic, number)
        if offset >= queue.next:
            raise OffsetBeyond(topic, number, offset, queue.next)
        if offset < queue.first:
            raise OffsetGone(topic, number, offset, queue.first)
        if offset in changes.ledger.acked_of(group, topic, number):
            return None
        changes.check_decided(group, topic, number, offset, offset + 1)
        return queue

    with changes.writer.commit_queue.lock:
        queue = wanted()
        tries = changes.holds.of(group, topic, number).tries_of(offset)
    if queue is None:
        return list
    # The message is read here: a plan, which is called under the lock, must not wait for the disk.
    what = group, queue, offset, offset + 1, reason, lambda _: tries
    ((_, _, (_, *letter)),) = changes.burying.appends_of(*what)

    def plan() -> list[Any]:
        found = wanted()
        if found not in (None, queue):  # the topic was deleted and made again meanwhile
            raise OffsetGone(topic, number, offset, queue.end)
        # Make a new ACK each time, because it gets the request of a client.
        ack = Acks([AckRange(group, topic, number, offset, offset + 1)], 0)
        return [] if found is None else [ack, *letter]

    return plan


def purge(
    changes: Changes, group: str, topic: str, number: int | None, at: At, by: str, reason: str
) -> Plan:
    """Let `group` pass over all messages before the place `at`, in one queue of `topic` or in
    all of them. Acks and deliveries from `at` on stay.
    """
    said = _said(by, reason)
    if number is not None:
        number = check_count("queue", number, 0)
    find = changes.finder(topic, at)

    def plan() -> list[Any]:
        changes.check_group(group, topic)
        found: list[Any] = []
        for queue in changes.queues_with(topic, number, at):
            acked = changes.ledger.acked_of(group, topic, queue.number)
            first, end = max(acked.floor, queue.first), min(find(queue), queue.end)
            if first < end:
                changes.check_decided(group, topic, queue.number, first, end)
                places = [QueuePlace(queue.number, first)]
                found.append(Changed(ChangeKind.SKIP, group, topic, places, end - first, text=said))
        return found

    return plan


def pause(changes: Changes, group: str, topic: str, by: str, reason: str) -> Plan:
    """Hand out nothing to `group`, or nothing of `topic` if `group` is "", until it is resumed. A
    group or topic that is paused already gets this reason.
    """
    said, topic = _said(by, reason), "" if group else topic

    def plan() -> list[Any]:
        _check_either(changes, group, topic)
        return [Changed(ChangeKind.PAUSE, group, topic, text=said)]

    return plan


def resume(changes: Changes, group: str, topic: str, by: str, reason: str) -> Plan:
    """End a pause of `group`, or of `topic` if `group` is "". Without one, change nothing."""
    said, topic = _said(by, reason), "" if group else topic

    def plan() -> list[Any]:
        _check_either(changes, group, topic)
        is_paused = (group, topic) in changes.ledger.pauses
        return [Changed(ChangeKind.RESUME, group, topic, text=said)] if is_paused else []

    return plan


def delete(changes: Changes, group: str, *, unless: Callable[[str], bool] | None = None) -> Plan:
    """Delete `group` in all its topics, except if `unless` returns True. Nothing is kept for it
    then.
    """

    def plan() -> list[Any]:
        if unless is not None and unless(group):
            return []
        changes.check_group(group)
        changes.check_decided(group)
        topics = topics_of(changes.ledger, group)
        own = [Changed(ChangeKind.DELETE_TOPIC, "", topic) for topic in topics]
        return [*own, Changed(ChangeKind.DELETE_GROUP, group, "")]

    return plan


def _check_either(changes: Changes, group: str, topic: str) -> None:
    """Raise UnknownGroup if there is no such group; without a group, UnknownTopic if there is no
    such topic.
    """
    if group:
        changes.check_group(group)
    else:
        changes.topic(topic)


def _said(by: str, reason: str) -> str:
    """Return who asks for a change, and why, as one text. Raises TypeError, BadName or TooLarge."""
    text_bytes("reason", reason, REASON_BYTES_MAX)
    return f"{check_name('by', by)}\n{reason}"
