"""Making, moving and deleting groups, and changing topics. Each change is one append."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from copy import copy
from datetime import datetime
from math import inf
from typing import Any

from fmq.arguments.names import check_count, check_name, check_seconds, no_queue
from fmq.arguments.options import QUEUES_MAX, SECONDS_MAX
from fmq.basics.clock import as_us
from fmq.basics.results import HeldMessages, MemberInfo
from fmq.consume.groups.groups import Groups
from fmq.consume.groups.held_messages import HeldPages, HeldPlace
from fmq.consume.groups.sieve import check_filter
from fmq.errors import (
    BadName,
    BadOption,
    FmqError,
    GroupExists,
    OffsetBeyond,
    StillUndecided,
    TooMany,
    TopicExists,
    TopicInUse,
    UnknownGroup,
    UnknownTopic,
)
from fmq.steps.call_steps import Durable, Steps, all_shown
from fmq.store.bytes.content import text_bytes
from fmq.store.bytes.extension import Request, extension_of
from fmq.store.bytes.internal import is_internal
from fmq.store.bytes.kinds import AckRange, Acks, Changed, ChangeKind, QueuePlace, TopicMade
from fmq.tx.commands.limits import REASON_BYTES_MAX
from fmq.tx.commands.writer import Writer
from fmq.tx.ledger.dead_changes import topics_of
from fmq.tx.ledger.queues import Queue, Topic
from fmq.tx.looks.messages import Messages
from fmq.tx.schedules.schedules import Schedules

logger = logging.getLogger("fmq.topics")
group_logger = logging.getLogger("fmq.groups")
EARLIEST, LATEST = "earliest", "latest"
MOVES = frozenset((ChangeKind.SEEK, ChangeKind.DELETE_GROUP, ChangeKind.DELETE_TOPIC))
At = str | int | datetime


class GroupChanges:
    """Changes the groups and topics of one engine, for callers and for new consumers."""

    def __init__(
        self, writer: Writer, groups: Groups, messages: Messages, schedules: Schedules
    ) -> None:
        self.schedules = schedules
        self._writer = writer
        self.ledger = self._ledger = writer.ledger
        self.stored = writer.ledger.options
        self._groups = groups
        self._messages = messages
        self._held = HeldPages(groups.holds)
        self._extension = b""
        self._write: Callable[..., object] = writer.commit_queue.run
        self._catch_up = writer.catch_up
        # Only in the copy of this object that `in_steps` makes: the step that its caller drives.
        self._step: Durable | None = None

    def in_steps(
        self, change: Callable[[GroupChanges], object], request: Request | None = None
    ) -> Steps[None]:
        """Carry out `change`, which makes one change of what it is given, for a caller that may not
        block. With `request`, the journal names the request of a client that asks for it.
        """
        found = copy(self)
        found._extension = b"" if request is None else extension_of(request)
        found._write, found._catch_up = found._keep, found._wait_later
        change(found)
        if found._step is not None:
            yield found._step

    def _keep(self, plan: Callable[[None], None], what: None, sync: bool) -> None:
        assert self._step is None, "`change` makes one change"
        self._step = Durable(plan, what, sync)

    def _wait_later(self, position: int) -> None:
        assert self._step is None, "`change` makes one change"
        if position >= self._ledger.shown_to:
            self._step = all_shown(self._writer.commit_queue)

    # --- members --------------------------------------------------------------------------------

    def members(self, group: str) -> list[MemberInfo]:
        """Return the members of `group` that are alive."""
        self.put_out()
        queue = self._writer.commit_queue
        with queue.lock, queue.changing:
            found = self._groups.rooms.infos(group, self._writer.clock.monotonic())
            if self._ledger.arrived:
                self._messages.wake()
        return found

    def in_hand(self, group: str, after: HeldPlace | None, limit: int) -> list[HeldMessages]:
        """Return what `group` has in hand or will try again, from the place `after` on."""
        self.put_out()
        self._catch_up(max(self._ledger.changed_at, self._ledger.acked_at))
        with self._writer.commit_queue.lock:
            self.check_group(group)
            return self._held.page(group, after, limit)

    def put_out(self) -> None:
        """Take out the members of all groups that made no call for too long, and redeliver what
        they hold.
        """
        now, queue = self._writer.clock.monotonic(), self._writer.commit_queue
        if now < self._groups.rooms.first_death:  # a first look, without the lock
            return
        with queue.lock, queue.changing:
            self._groups.rooms.expire(now)
            if self._ledger.arrived:
                self._messages.wake()

    def next_death(self) -> float:
        """Return when the next member of any group may count as dead, by the monotonic clock."""
        return self._groups.rooms.first_death

    # --- calls ----------------------------------------------------------------------------------

    def make(self, group: str, topic: str, at: At, exist_ok: bool, wanted: str) -> None:
        """Make a group of `topic` that begins at the place `at` and has the filter `wanted`. With
        `exist_ok`, change nothing if it exists with this filter.

        Raises GroupExists, FilterDiffers, OffsetBeyond, BadOption or TypeError.
        """
        group, topic = check_name("group", group), check_name("topic", topic)
        find = self._finder(topic, at)

        def plan() -> list[Changed | TopicMade]:
            known = self._ledger.subscriptions.get((group, topic))
            if known is not None:
                if not exist_ok:
                    raise GroupExists(group, topic)
                check_filter(group, topic, known.filter, wanted)
                return []
            places = [QueuePlace(queue.number, find(queue)) for queue in self._queues(topic)]
            return [Changed(ChangeKind.MAKE_GROUP, group, topic, places, text=wanted)]

        self.run(plan)

    def join(
        self,
        group: str,
        topics: Iterable[str],
        wanted: str | None = None,
        *,
        at_end: bool = False,
    ) -> None:
        """Subscribe the group to each of `topics` that it does not take from yet. It begins at the
        earliest message, or with `at_end` after the newest.

        Its filter is `wanted`. Raises FilterDiffers if the group exists and has another filter;
        None fits any.
        """
        known, topics = self._ledger.subscriptions, [*topics]

        def plan() -> list[Changed | TopicMade]:
            new = [topic for topic in topics if (group, topic) not in known]
            for topic in topics:
                if topic not in new:
                    check_filter(group, topic, known[group, topic].filter, wanted)
            text = wanted or ""
            return [
                Changed(ChangeKind.MAKE_GROUP, group, topic, ends(topic), text=text)
                for topic in new
            ]

        def ends(topic: str) -> list[QueuePlace]:
            if not at_end:
                return []
            return [QueuePlace(each.number, each.end) for each in self._queues(topic)]

        self.run(plan)

    def set_filter(self, group: str, topic: str, wanted: str) -> None:
        """Give `group` another filter for `topic` from now on."""

        def plan() -> list[Changed | TopicMade]:
            self.check_group(group, topic)
            return [Changed(ChangeKind.FILTER, group, topic, text=wanted)]

        self.run(plan)

    def seek(self, group: str, topic: str, number: int | None, at: At) -> None:
        """Let `group` go on at the place `at`, in one queue of `topic` or in all of them.

        Messages from there on are redelivered even if they were acked.
        """
        if number is not None:
            number = check_count("queue", number, 0)
        find = self._finder(topic, at)

        def plan() -> list[Changed | TopicMade]:
            self.check_group(group, topic)
            self._check_decided(group, topic, number)
            queues = self._queues_with(topic, number, at)
            places = [QueuePlace(queue.number, find(queue)) for queue in queues]
            return [Changed(ChangeKind.SEEK, group, topic, places)]

        self.run(plan)

    def skip(self, group: str, topic: str, number: int, offset: int, count: int) -> None:
        """Let `group` pass over `count` messages from `offset` on."""
        number, offset = check_count("queue", number, 0), check_count("offset", offset, 0)
        count = check_count("count", count)

        def plan() -> list[Changed | TopicMade]:
            self.check_group(group, topic)
            self._check_decided(group, topic, number, offset, offset + count)
            (queue,) = self._queues(topic, number)
            _check_end(queue, offset + count)
            return [Changed(ChangeKind.SKIP, group, topic, [QueuePlace(number, offset)], count)]

        self.run(plan)

    def ack_below(self, group: str, topic: str, number: int, offset: int) -> None:
        """Ack for `group` all messages of a queue below `offset` that it has not acked."""
        number, offset = check_count("queue", number, 0), check_count("offset", offset, 0)

        def plan() -> list[Acks]:
            self.check_group(group, topic)
            (queue,) = self._queues(topic, number)
            _check_end(queue, offset)
            acked = self._ledger.acked_of(group, topic, number)
            ranges = [
                AckRange(group, topic, number, *gap)
                for gap in acked.gaps(queue.first, offset)  # those that it has not acked
            ]
            if ranges:
                self._check_decided(group, topic, number, ranges[0].first, offset)
            return [Acks(ranges, 0)] if ranges else []

        self.run(plan)

    def purge(
        self, group: str, topic: str, number: int | None, at: At, by: str, reason: str
    ) -> None:
        """Let `group` pass over all messages before the place `at`, in one queue of `topic` or in
        all of them. Acks and deliveries from `at` on stay.
        """
        said = _said(by, reason)
        if number is not None:
            number = check_count("queue", number, 0)
        find = self._finder(topic, at)

        def plan() -> list[Changed | TopicMade]:
            self.check_group(group, topic)
            changes: list[Changed | TopicMade] = []
            for queue in self._queues_with(topic, number, at):
                acked = self._ledger.acked_of(group, topic, queue.number)
                first, end = max(acked.floor, queue.first), min(find(queue), queue.end)
                if first < end:
                    self._check_decided(group, topic, queue.number, first, end)
                    places = [QueuePlace(queue.number, first)]
                    changes.append(
                        Changed(ChangeKind.SKIP, group, topic, places, end - first, text=said)
                    )
            return changes

        self.run(plan)

    def pause(self, group: str, topic: str, by: str, reason: str) -> None:
        """Hand out nothing to `group`, or nothing of `topic` if `group` is "", until it is resumed.
        What is paused already has this reason from now on.
        """
        said, topic = _said(by, reason), "" if group else topic

        def plan() -> list[Changed | TopicMade]:
            self._check_either(group, topic)
            return [Changed(ChangeKind.PAUSE, group, topic, text=said)]

        self.run(plan)

    def resume(self, group: str, topic: str, by: str, reason: str) -> None:
        """End a pause of `group`, or of `topic` if `group` is "". Without one, change nothing."""
        said, topic = _said(by, reason), "" if group else topic

        def plan() -> list[Changed | TopicMade]:
            self._check_either(group, topic)
            is_paused = (group, topic) in self._ledger.pauses
            return [Changed(ChangeKind.RESUME, group, topic, text=said)] if is_paused else []

        self.run(plan)

    def _check_either(self, group: str, topic: str) -> None:
        """Raise UnknownGroup or UnknownTopic. Without a group the topic is meant."""
        if group:
            self.check_group(group)
        else:
            self._topic(topic)

    def check_known(self, group: str) -> None:
        """Raise UnknownGroup if there is no `group`."""
        with self._writer.commit_queue.lock:
            self.check_group(group)

    def delete(self, group: str, *, unless: Callable[[str], bool] | None = None) -> None:
        """Delete `group` in all its topics, except if `unless` returns True. Nothing is kept for it
        then.
        """

        def plan() -> list[Changed | TopicMade]:
            if unless is not None and unless(group):
                return []
            self.check_group(group)
            self._check_decided(group)
            topics = topics_of(self._ledger, group)
            own = [Changed(ChangeKind.DELETE_TOPIC, "", topic) for topic in topics]
            return [*own, Changed(ChangeKind.DELETE_GROUP, group, "")]

        self.run(plan)

    # --- topics ---------------------------------------------------------------------------------

    def make_topic(self, topic: str, queues: int | None, retain_seconds: float | None) -> None:
        """Make `topic` with this many queues. None: as many as the options say. Raises
        TopicExists.
        """
        topic, count = check_name("topic", topic), self._writer.options.queues_of(topic)
        if queues is not None:
            count = _check_queues(check_count("queues", queues))
        retain_ms = _retain_ms(retain_seconds)

        def plan() -> list[Changed | TopicMade]:
            if topic in self._ledger.topics:
                raise TopicExists(topic)
            retains = [Changed(ChangeKind.RETAIN, "", topic, value=retain_ms)] if retain_ms else []
            return [TopicMade(topic, count, 0), *retains]

        self.run(plan)

    def add_queues(self, topic: str, count: int) -> None:
        """Give `topic` `count` more queues. Raises UnknownTopic."""
        count = check_count("count", count)

        def plan() -> list[Changed | TopicMade]:
            queues = _check_queues(len(self._topic(topic).queues) + count)
            return [Changed(ChangeKind.ADD_QUEUES, "", topic, value=queues)]

        self.run(plan)

    def retain(self, topic: str, seconds: float | None) -> None:
        """Set how long the messages of `topic` are kept, in seconds. None: as the options say."""
        retain_ms = _retain_ms(seconds)

        def plan() -> list[Changed | TopicMade]:
            self._topic(topic)
            return [Changed(ChangeKind.RETAIN, "", topic, value=retain_ms)]

        self.run(plan)

    def delete_topic(self, topic: str) -> None:
        """Delete `topic` with its messages. Its groups stay. If the topic is made again, they begin
        anew.

        Raises UnknownTopic, or TopicInUse if an undecided transaction writes to it.
        """

        def plan() -> list[Changed | TopicMade]:
            known = self._topic(topic)
            for entry in self._ledger.undecided.values():
                if any(run.topic == topic for run in entry.runs):
                    raise TopicInUse(topic, entry.prepare.tx_id)
            for group, taken in self._ledger.subscriptions:
                if taken == topic:
                    for queue in known.queues:
                        self._check_decided(group, topic, queue.number)
            return [Changed(ChangeKind.DELETE_TOPIC, "", topic)]

        self.run(plan)

    def check_topic(self, topic: str) -> None:
        """Raise UnknownTopic if there is no `topic`."""
        with self._writer.commit_queue.lock:
            self._topic(topic)

    def grow_topics(self) -> None:
        """Give topics more queues where they have fewer than the options say."""
        for topic, wanted in self._writer.options.topic_queues.items():
            known = self._ledger.topics.get(topic)
            if known is not None and len(known.queues) < wanted:
                try:
                    self.add_queues(topic, wanted - len(known.queues))
                except FmqError as error:
                    logger.warning("the topic %r gets no more queues for now: %s", topic, error)
            elif known is not None and len(known.queues) > wanted:
                logger.warning(
                    "the topic %r has %s queues, and the options name %s: none is taken away",
                    *(topic, len(known.queues), wanted),
                )

    def trim(self) -> None:
        """Drop messages that are older than the retention of their own topic."""
        now_us = self._writer.clock.time_us()
        for topic in [*self._ledger.topics.values()]:
            if topic.retain_ms:
                self._trim(topic, now_us - topic.retain_ms * 1000)

    def _trim(self, topic: Topic, until_us: int) -> None:
        try:
            first = {
                queue.number: self._messages.offset_at(topic.name, queue.number, until_us)
                for queue in topic.queues
            }
        except BadName:
            return  # the topic was made again meanwhile, with fewer queues

        def plan() -> list[Changed | TopicMade]:
            if self._ledger.topics.get(topic.name) is not topic:
                return []  # the topic was deleted meanwhile, and perhaps made again
            places = [
                QueuePlace(queue.number, first[queue.number])
                for queue in topic.queues
                if queue.first < first.get(queue.number, 0)
            ]
            return [Changed(ChangeKind.TRIM, "", topic.name, places)] if places else []

        groups = [
            each for each in [*self._ledger.subscriptions.values()] if each.topic == topic.name
        ]
        before = [each.lost for each in groups]
        self.run(plan)
        for each, lost in zip(groups, before, strict=True):
            if each.lost > lost:
                group_logger.warning(
                    "the group %r has lost %s messages of the topic %r, which it had not acked: "
                    "the topic's own retention waits for no group",
                    *(each.group, f"{each.lost - lost:,}", topic.name),
                )

    def _topic(self, topic: str) -> Topic:
        known = self._ledger.topics.get(topic)
        if known is None or not known.has_record or is_internal(topic):
            raise UnknownTopic(topic)
        return known

    # --- how a change is planned ----------------------------------------------------------------

    def run(self, plan: Callable[[], list[Any]]) -> None:
        """Write the changes that `plan` returns. They are durable on return."""
        writer = self._writer

        # `plan` is called twice: here, to find out whether there is anything to write, and in the
        # plan, where others may have changed something meanwhile. So it must change nothing.
        def plan_changes(_: None) -> None:
            writer.release_dropped()
            changes = plan()
            if changes:
                changes[0].extension = self._extension
                writer.send(changes)
                asked = {each.asked for each in changes if isinstance(each, Changed)}
                writer.moves += not asked.isdisjoint(MOVES)

        with writer.commit_queue.lock:
            writer.commit_queue.check()
            is_needed = plan()
        if is_needed:
            self._write(plan_changes, None, True)
        else:  # nothing to change, as for almost every new consumer
            self._catch_up(self._ledger.changed_at)

    def _finder(self, topic: str, at: At) -> Callable[[Queue], int]:
        """Return a function that finds the offset for `at` in a queue. It is called in a plan,
        under the engine's lock.

        Raises TypeError or BadOption.
        """
        if at == EARLIEST:
            return lambda queue: queue.first
        if at == LATEST:
            return lambda queue: queue.end
        if isinstance(at, datetime):
            known = self._ledger.topics.get(topic)
            time_us = as_us(at)
            found = {
                queue.number: self._messages.offset_at(topic, queue.number, time_us)
                for queue in (() if known is None else known.queues)
            }
            return lambda queue: max(found.get(queue.number, 0), queue.first)
        if isinstance(at, str):
            raise BadOption(
                f"{at!r}: a group begins at {EARLIEST!r}, {LATEST!r}, an offset or a time. "
                "Nothing was changed."
            )
        offset = check_count("offset", at, 0)

        def exactly(queue: Queue) -> int:
            _check_end(queue, offset)
            return max(offset, queue.first)

        return exactly

    def _queues(self, topic: str, number: int | None = None) -> list[Queue]:
        """Return one queue of `topic`, or all of them; an empty list if the topic does not exist.
        Raises BadName.
        """
        known = self._ledger.topics.get(topic)
        queues = [] if known is None else known.queues
        if number is None:
            return queues
        if number >= len(queues):
            raise no_queue(topic, number, len(queues))
        return [queues[number]]

    def _queues_with(self, topic: str, number: int | None, at: At) -> list[Queue]:
        """Return the queues for which `at` is a place. Raises BadOption if it is an offset of
        several.
        """
        queues = self._queues(topic, number)
        if type(at) is int and len(queues) > 1:
            raise BadOption(
                f"offset={at}: the topic {topic!r} has {len(queues)} queues, and each has "
                "offsets of its own. Nothing was changed; name one of them with queue=."
            )
        return queues

    def check_group(self, group: str, topic: str | None = None) -> None:
        """Raise UnknownGroup unless `group` takes from `topic`; without a topic, from any. The
        caller holds the engine's lock.
        """
        topics = [taken for known, taken in self._ledger.subscriptions if known == group]
        if not topics or topic not in (None, *topics):
            raise UnknownGroup(group, topic or "", topics)

    def _check_decided(
        self,
        group: str,
        topic: str = "",
        number: int | None = None,
        first: int = 0,
        end: float = inf,
    ) -> None:
        """Raise StillUndecided if an undecided transaction acks messages in this range."""
        for entry in self._ledger.undecided.values():
            prepare = entry.prepare
            for ack in prepare.acks:
                is_there = topic in ("", ack.topic) and number in (None, ack.queue)
                if ack.group == group and is_there and ack.first < end and first < ack.end:
                    raise StillUndecided(prepare.tx_id, group, ack.topic, ack.queue)


def _check_queues(count: int) -> int:
    if count > QUEUES_MAX:
        raise TooMany("queues", count, QUEUES_MAX, "fixed by fmq", "use more topics")
    return count


def _said(by: str, reason: str) -> str:
    """Return who asks for a change, and why, as one text. Raises TypeError, BadName or TooLarge."""
    text_bytes("reason", reason, REASON_BYTES_MAX)
    return f"{check_name('by', by)}\n{reason}"


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


def _check_end(queue: Queue, offset: int) -> None:
    if offset > queue.end:
        raise OffsetBeyond(queue.topic, queue.number, offset, queue.end)
