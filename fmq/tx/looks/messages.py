"""Finding and reading visible messages, and waiting for new ones.

The indexes of the segment being written, and of segments just sealed, are in memory and read under
the lock. All other indexes, and all bytes of messages, are read outside of the lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from threading import RLock

from fmq.arguments.names import no_queue
from fmq.basics.clock import Clock, as_datetime
from fmq.basics.message import Mark, MessagePlace
from fmq.basics.results import GroupInfo, QueueInfo, TopicCodec
from fmq.errors import Damaged, OffsetGone, StorageError, UnknownTopic
from fmq.steps.call_steps import Arrival, Steps, Wakeup
from fmq.store.bytes.dead_column import Failure, failures_in
from fmq.store.bytes.internal import is_internal
from fmq.store.bytes.kinds import Run
from fmq.store.bytes.record import BadRecord
from fmq.store.index.catalog import Catalog
from fmq.store.index.index import SegmentIndex
from fmq.store.journal.segment import SEGMENT_MISSING, segment_name
from fmq.store.reading.batch import Batch
from fmq.store.reading.reader import Carried, Entries, Reader, entries_of
from fmq.tx.ledger.acks import AckSet
from fmq.tx.ledger.ledger import Ledger
from fmq.tx.ledger.queues import Queue, Topic


class Messages:
    """The visible messages of one engine."""

    def __init__(
        self, lock: RLock, ledger: Ledger, catalog: Catalog, reader: Reader, clock: Clock
    ) -> None:
        self.lock = lock
        self.ledger = ledger
        self._catalog = catalog
        self._reader = reader
        self.clock = clock
        self.hurry: Callable[[], None] = lambda: None  # has posted appends written at once
        # Waits until the append at a position is shown. Raises EngineFailed if that will not
        # happen.
        self.catch_up: Callable[[int], None] = lambda position: None

    def batch(self, topic: str, queue: int, offset: int, limit: int) -> Batch | None:
        """Return up to `limit` messages from `offset` on, at least one; None if there are none yet.

        Raises OffsetGone if retention has dropped them, BadName if the topic has no such queue.
        """
        with self.lock:
            found = self._known(topic, queue)
        if found is None or offset >= found.next:
            return None
        try:
            return self.batch_of(found, offset, limit)
        except OffsetGone:
            with self.lock:
                if self._known(topic, queue) is found:
                    raise
            # The topic was deleted and made again meanwhile.
            return self.batch(topic, queue, offset, limit)

    def batch_of(self, queue: Queue, offset: int, limit: int) -> Batch:
        """Return messages as `batch` does, from a queue that has, or had, a message at `offset`.

        Raises OffsetGone if retention has dropped the message, or the topic was deleted.
        """
        name, number = queue.topic, queue.number
        with self.lock:
            self._check_floor(queue, offset)
            latest = queue.latest
            if latest is None or latest.offset != offset:
                latest = None
                limit = min(limit, queue.next - offset)
                entries = self._in_memory(name, number, offset, limit)
                visible = self.ledger.shown_to
        if latest is not None:
            return latest.batch(limit)
        if entries is None:
            entries = self._in_catalog(queue, offset, limit)
        try:
            return self._reader.batch(name, number, entries, offset, limit, visible)
        except FileNotFoundError:
            raise self._missing(queue, offset, entries) from None

    def carried(
        self, queue: Queue, offset: int, limit: int, tags: Sequence[bytes] | None = None
    ) -> Iterator[Carried]:
        """Yield the key, tag, headers and extras of up to `limit` messages from `offset` on, at
        least of one. With `tags`, a message without any of them may be yielded as if it carried
        nothing. Raises the errors of reading.
        """
        entries = self._entries_of(queue, offset, limit)
        keep_to = self.ledger.shown_to - entries.base
        try:
            yield from self._reader.carried(entries, offset, limit, keep_to, tags)
        except FileNotFoundError:
            raise self._missing(queue, offset, entries) from None

    def failures(self, topic: str, first: int, end: int) -> Iterator[Failure | None]:
        """Yield where each message of an internal topic failed. Raises the errors of reading, and
        OffsetGone if the topic was deleted.
        """
        while first < end:
            queue = self._queue_with(topic, 0, first)
            if queue is None:
                raise OffsetGone(topic, 0, first, end)
            entries = self._entries_of(queue, first, end - first)
            at = entries.first
            for number, count in enumerate(entries.counts):
                run, place = self._head(queue, first, entries, number), entries.records[number]
                try:
                    said = failures_in(run.extension, count)
                except BadRecord as error:
                    file = segment_name(entries.base)
                    raise Damaged(file, entries.base + place, str(error)) from None
                found: list[Failure | None] = [None] * count if said is None else [*said]
                yield from found[max(first - at, 0) : max(end - at, 0)]
                at += count
            first = at

    def record_at(self, topic: str, queue: int, offset: int) -> tuple[int, int]:
        """Return the first offset of the record that holds `offset`, and the end of its messages,
        without reading it. Raises OffsetGone.
        """
        found = self._queue_with(topic, queue, offset)
        if found is None:
            raise OffsetGone(topic, queue, offset, offset + 1)
        entries = self._entries_of(found, offset, 1)
        return entries.first, entries.first + entries.counts[0]

    def time_us_of(self, topic: str, queue: int, offset: int) -> int | None:
        """Return when the message at `offset` was written; None if there is no such message."""
        found = self._queue_with(topic, queue, offset)
        if found is None:
            return None
        return self._head(found, offset, self._entries_of(found, offset, 1)).time_us

    def offset_at(self, topic: str, queue: int, time_us: int) -> int:
        """Return the offset of the first message that was written at `time_us` or later. If there
        is none, return the offset of the next message. Times never go back in a journal, so a
        bisection finds it.
        """
        with self.lock:
            found = self._known(topic, queue)
            if found is None:
                return 0
            low, high = found.first, found.next
        while low < high:
            middle = (low + high) // 2
            try:
                entries = self._entries_of(found, middle, 1)
                run = self._head(found, middle, entries)
            except OffsetGone as gone:
                low = max(low, gone.first)  # retention has dropped the first ones meanwhile
                continue
            if run.time_us < time_us:
                low = entries.first + entries.counts[0]
            else:
                high = min(middle, max(low, entries.first))
        return low

    def _queue_with(self, topic: str, number: int, offset: int) -> Queue | None:
        """Return the queue if it has, or had, a message at `offset`. Return None if it does not
        reach that far.

        Raises BadName if the topic has no such queue.
        """
        with self.lock:
            found = self._known(topic, number)
        return None if found is None or offset >= found.next else found

    def _entries_of(self, queue: Queue, offset: int, limit: int) -> Entries:
        """Return the index entries of up to `limit` messages of the queue from `offset` on. The
        queue has, or had, a message there.

        Raises OffsetGone if retention has dropped it, or the topic was deleted.
        """
        with self.lock:
            self._check_floor(queue, offset)
            many = min(limit, queue.next - offset)
            entries = self._in_memory(queue.topic, queue.number, offset, many)
        return self._in_catalog(queue, offset, limit) if entries is None else entries

    def _known(self, topic: str, number: int) -> Queue | None:
        """Return a queue. Return None if the topic does not exist, but could be made with that
        queue.

        Raises BadName if the topic has no such queue. The caller holds the engine's lock.
        """
        found = self.ledger.queue(topic, number)
        if found is None:
            known = self.ledger.topics.get(topic)
            if known is not None and known.has_record:
                raise no_queue(topic, number, len(known.queues))
        return found

    def _in_memory(self, topic: str, queue: int, offset: int, limit: int) -> Entries | None:
        ledger = self.ledger
        key = topic, queue
        lane = ledger.index.lanes.get(key)
        if lane is not None and lane.first <= offset < lane.next:
            return entries_of(ledger.index.base, lane, offset, limit)
        since = ledger.deleted.get(topic, 0)
        for index in reversed(ledger.sealed):
            if index.end <= since:
                break
            lane = index.lanes.get(key)
            if lane is not None and lane.first <= offset < lane.next:
                return entries_of(index.base, lane, offset, limit)
        return None

    def _in_catalog(self, queue: Queue, offset: int, limit: int) -> Entries:
        key = queue.topic, queue.number
        try:
            since = self.ledger.deleted.get(queue.topic, 0)
            index: SegmentIndex | None = self._catalog.find(key, offset, since)
        except FileNotFoundError:
            index = None
        if index is None or offset >= index.lanes[key].next:
            self._raise_gone(queue, offset)
            first = next(iter(self._catalog.bases()), self.ledger.index.base)
            reason = (
                f"{queue.topic}/{queue.number} offset {offset} is in no segment from here on: "
                "those before are missing, or an index is not that of its segment"
            )
            raise Damaged(segment_name(first), first, reason)
        return entries_of(index.base, index.lanes[key], offset, limit)

    def _head(self, queue: Queue, offset: int, entries: Entries, number: int = 0) -> Run:
        """Return the run of an entry, without its bodies. Raises the errors of reading."""
        try:
            return self._reader.head(entries.base, entries.records[number])[0]
        except FileNotFoundError:
            raise self._missing(queue, offset, entries) from None

    def _missing(self, queue: Queue, offset: int, entries: Entries) -> Damaged:
        """Return the error for a segment whose file is missing. Raises OffsetGone instead if
        retention has dropped it.
        """
        self._raise_gone(queue, offset)
        return Damaged(segment_name(entries.base), entries.base, SEGMENT_MISSING)

    def _raise_gone(self, queue: Queue, offset: int) -> None:
        with self.lock:
            self._check_floor(queue, offset)

    @staticmethod
    def _check_floor(queue: Queue, offset: int) -> None:
        if offset < queue.first:
            raise OffsetGone(queue.topic, queue.number, offset, queue.first)

    def reading(
        self,
        topic: str,
        queue: int,
        offset: int,
        limit: int,
        timeout: float,
        check: Callable[[], None],
    ) -> Steps[Batch | None]:
        """Return what `batch` does; wait up to `timeout` seconds for the first message. Each look
        calls `check` first.
        """
        deadline = self.clock.monotonic() + timeout
        read = partial(self.batch, topic, queue, offset, limit)
        while True:
            check()
            found = read() if self._is_warm(topic, queue, offset) else (yield read)
            if found is not None or self.clock.monotonic() >= deadline:
                return found
            yield self._arrival((topic,), deadline)

    def waiting(
        self, places: Sequence[MessagePlace], timeout: float, check: Callable[[], None]
    ) -> Steps[list[MessagePlace]]:
        """Return the places that `reached` finds; wait up to `timeout` seconds for the first one.
        Each look calls `check` first.
        """
        deadline = self.clock.monotonic() + timeout
        topics = (*dict.fromkeys(topic for topic, _, _ in places),)
        while True:
            check()
            found = self.reached(places)
            if found or self.clock.monotonic() >= deadline:
                return found
            yield self._arrival(topics, deadline)

    def _arrival(self, topics: tuple[str, ...], deadline: float) -> Arrival:
        """Return the step that waits for a message of any of `topics`."""
        stop = partial(self.stop_listening, topics=topics)
        return Arrival(partial(self._listen, topics), stop, deadline)

    def reached(self, places: Iterable[MessagePlace]) -> list[MessagePlace]:
        """Return each of `places` whose queue has a message at its offset or after it, with the
        offset of the queue's next message.

        Raises BadName if a topic has no such queue.
        """
        with self.lock:
            known = [(place, self._known(place[0], place[1])) for place in places]
            return [
                (topic, number, queue.next)
                for (topic, number, offset), queue in known
                if queue is not None and queue.next > offset
            ]

    def _is_warm(self, topic: str, queue: int, offset: int) -> bool:
        """Return whether to look for a message touches no disk: it is in memory, or not there."""
        known = self.ledger.queue(topic, queue)
        if known is None or offset >= known.next:
            return True
        return known.latest is not None and known.latest.offset == offset

    def codec_of(self, topic: str) -> TopicCodec | None:
        """Return how the bodies of `topic` are made; None if that is not stored. Raises
        UnknownTopic.
        """
        self.catch_up(self.ledger.changed_at)
        with self.lock:
            known = self.ledger.topics.get(topic)
            if known is None or not known.has_record:
                raise UnknownTopic(topic)
            return known.codec

    def mark(self, name: str) -> Mark | None:
        """Return the mark under `name`; None if there is none."""
        self.catch_up(self.ledger.marked_at)
        with self.lock:
            return self.ledger.marks.get(name)

    def marks(self, names: Iterable[str], prefix: str | None) -> dict[str, Mark]:
        """Return the marks of `names`, and those whose names begin with `prefix`, at one
        instant.
        """
        self.catch_up(self.ledger.marked_at)
        with self.lock:
            marks = self.ledger.marks
            found = {name: marks[name] for name in names if name in marks}
            if prefix is not None:
                found |= {name: mark for name, mark in marks.items() if name.startswith(prefix)}
        return found

    def unacked(self, group: str, topic: str, limit: int) -> list[list[int]]:
        """Return ranges of messages that a group has not acked, each as queue, first and end: the
        oldest ones of each queue, up to `limit` messages.
        """
        self.catch_up(max(self.ledger.acked_at, self.ledger.changed_at))
        found: list[list[int]] = []
        with self.lock:
            known = self.ledger.topics.get(topic)
            for queue in () if known is None else known.queues:
                key = group, topic, queue.number
                acked, left = self.ledger.acked.get(key) or AckSet(queue.first), limit
                for first, end in acked.gaps(queue.first, queue.next):
                    if left <= 0:
                        break
                    found.append([queue.number, first, min(end, first + left)])
                    left -= end - first
        return found

    def queues(self, topic: str | None) -> list[QueueInfo]:
        """Return all queues, or those of one topic, as they are at one instant."""
        self.catch_up(self.ledger.changed_at)
        with self.lock:
            found, pauses = self.ledger.topics, self.ledger.pauses
            topics = found.values() if topic is None else filter(None, (found.get(topic),))
            # Copy only numbers; make the objects outside of the lock.
            numbers = [
                (
                    *(each.name, queue.number, queue.first, queue.next),
                    self.ledger.pause_of("", each.name) if pauses else None,
                )
                for each in topics
                if each.has_record and not is_internal(each.name)
                for queue in each.queues
            ]
        return [QueueInfo(*each) for each in numbers]

    def groups(self, group: str | None) -> list[GroupInfo]:
        """Return the state of all groups, or of one, with every queue of the topics that they have
        consumed.

        Each queue is shown at one instant. Between two queues other calls may take the lock.
        """
        self.catch_up(max(self.ledger.acked_at, self.ledger.changed_at))
        with self.lock:
            keys: Iterable[tuple[str, str]] = self.ledger.subscriptions
            if group is not None:
                keys = [(group, topic) for topic in self.ledger.subscriptions.topics_of(group)]
            taken = sorted(key for key in keys if not is_internal(key[1]))
        found = []
        for name, topic in taken:
            with self.lock:
                known = self.ledger.topics.get(topic)
                queues = [] if known is None else [*known.queues]
                if not queues and self.ledger.replayed_of(name, topic):
                    # The topic was deleted, but the group's replayed dead letters of it are still
                    # there.
                    queues = Topic(topic, 1).queues
            for queue in queues:
                with self.lock:
                    info, oldest = self._group_info(name, queue)
                found.append(self._behind(info, oldest))
        return found

    def _behind(self, info: GroupInfo, oldest: list[tuple[str, int, int]]) -> GroupInfo:
        """Return `info` with the time and the age of the oldest message that is not acked. This
        message is at one of the places in `oldest`.
        """
        times = []
        for place in oldest:
            try:
                time_us = self.time_us_of(*place)
            except (OffsetGone, StorageError):
                continue  # the message is damaged, or retention has dropped it
            if time_us is not None:
                times.append(time_us)
        if not times:
            return info
        sent_us = min(times)
        behind = max(self.clock.time_us() - sent_us, 0) / 1_000_000  # the clock may go back
        return replace(info, behind_seconds=behind, oldest=as_datetime(sent_us))

    def _group_info(self, group: str, queue: Queue) -> tuple[GroupInfo, list[tuple[str, int, int]]]:
        """Return how far a group is in a queue, and the places of its oldest messages without an
        ack: of the queue itself, and of what was replayed to the group.
        """
        acked = self.ledger.acked.get((group, queue.topic, queue.number)) or AckSet(queue.first)
        subscription = self.ledger.subscriptions.get((group, queue.topic))
        first = acked.gap(queue.first, queue.next)
        oldest = [] if first is None else [(queue.topic, queue.number, first[0])]
        again = [] if queue.number else self.ledger.replayed_of(group, queue.topic)
        oldest += [(self.ledger.again[group, queue.topic], 0, low) for low, _ in again[:1]]
        replayed = sum(high - low for low, high in again)
        info = GroupInfo(
            *(group, queue.topic, queue.number, acked.floor, acked.count_beyond()),
            unread=acked.count_gaps(queue.first, queue.next) + replayed,
            lost=0 if subscription is None else subscription.lost,
            skipped=0 if subscription is None else subscription.skipped,
            dead_letters=self.ledger.dead_letters_of(group),
            expired=0 if subscription is None else subscription.expired,
            replayed=replayed,
            paused=self.ledger.pause_of(group, queue.topic),
            limit=self.ledger.limit_of(group) if self.ledger.limits else None,
            filter="" if subscription is None else subscription.filter,
        )
        return info, oldest

    # --- waiting --------------------------------------------------------------------------------

    def listen(self, topics: tuple[str, ...], wakeup: Callable[[], None]) -> None:
        """Have `wakeup` called at least once when the next message of any of `topics` comes. Under
        the lock.
        """
        self.hurry()
        for name in topics:
            topic = self.ledger.topics.get(name)
            if topic is not None:
                topic.waiting.append(wakeup)
            else:
                self.ledger.awaited.setdefault(name, []).append(wakeup)

    def _listen(self, topics: tuple[str, ...], wakeup: Callable[[], None]) -> float:
        """Listen for messages. Return infinity, because there is no time to look without one."""
        with self.lock:
            self.listen(topics, wakeup)
        return inf

    def stop_listening(self, wakeup: Callable[[], None], topics: tuple[str, ...]) -> None:
        """Remove `wakeup` from the lists of `topics`."""
        if isinstance(wakeup, Wakeup) and wakeup.woken and len(topics) == 1:
            return  # the wakeup was taken from the list when it was called
        with self.lock:
            for name in topics:
                waiting = self._waiting_for(name)
                if wakeup in waiting:
                    waiting.remove(wakeup)
                if not waiting:
                    self.ledger.awaited.pop(name, None)

    def _waiting_for(self, name: str) -> list[Callable[[], None]]:
        topic = self.ledger.topics.get(name)
        return self.ledger.awaited.get(name, []) if topic is None else topic.waiting

    def wake(self) -> None:
        """Wake the threads that wait for topics in `arrived`. Such a topic may not exist. The
        caller holds the engine's lock.
        """
        for name in self.ledger.arrived:
            waiting = self._waiting_for(name)
            for wakeup in waiting:
                wakeup()
            waiting.clear()
            self.ledger.awaited.pop(name, None)
        self.ledger.arrived.clear()

    def wake_for(self, queue: Queue) -> None:
        """Wake the polls that wait for `queue`. They look again. The caller holds the engine's
        lock.
        """
        self.ledger.arrived.add(queue.topic)
        self.wake()

    def wake_all(self) -> None:
        """Wake all waiting threads, because the engine closes or has failed. The caller holds the
        engine's lock.
        """
        waited_for = (topic.name for topic in self.ledger.topics.values() if topic.waiting)
        self.ledger.arrived.update(waited_for, self.ledger.awaited)
        self.wake()
