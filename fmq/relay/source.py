"""The side of a relay that reads: whole appends of some topics, and the group that holds them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias

from fmq.basics.message import Message
from fmq.errors import BadName, OffsetBeyond, OffsetGone, PositionGone, UnknownGroup
from fmq.relay.relay_errors import StoreDiffers
from fmq.relay.target import RelayBatch, RelayPlace

NO_TOPIC = ""  # of a place that a person has chosen: it has no last message
WAIT_SECONDS = 1.0  # a relay that waits for messages checks this often whether it should stop


QueueEnds: TypeAlias = dict[tuple[str, int], int]
"""The offset after the last message of each queue, by topic and queue."""


class MessageAt(NamedTuple):
    """Where a message is, and when it was published."""

    topic: str
    queue: int
    offset: int
    position: int
    time_us: int


class RelayRead(NamedTuple):
    """What one read of a relay has found."""

    position: int
    """Where the next read goes on."""
    batch: RelayBatch | None
    """None if nothing was published."""
    ends: QueueEnds
    """Of the batch."""


class RelaySource:
    """Reads topics of an engine for one relay."""

    def __init__(self, engine: Any, topics: list[str], group: str) -> None:
        self.engine = engine
        self.topics = topics
        self.store: str = engine.feedback.store
        for topic in topics:
            engine.create_group(group, topic, exist_ok=True)
        self._group = engine.group(group)
        # The offset of the next message of each queue that was not read yet.
        self._next: QueueEnds = {}

    def begin(self, place: RelayPlace | None) -> int:
        """Return the position after `place` where reading goes on. Ack what is copied. Raises
        StoreDiffers.
        """
        if place is None:
            self._check_new()
            self._next = ends_below(self.engine, self.topics, 0)
            return 0
        self._check(place)
        self._next = ends_below(self.engine, self.topics, place.position)
        self.ack(self._next)
        return place.position

    def read(self, position: int, limit: int) -> RelayRead:
        """Return what was published from `position` on, at most `limit` messages or one append.
        Raises StoreDiffers.
        """
        try:
            messages, end = self.engine.tail(position, topics=self.topics, limit=limit)
        except PositionGone as error:
            raise StoreDiffers(
                f"retention has dropped what was not copied yet: {error} Nothing was changed."
            ) from error
        if not messages:
            return RelayRead(end, None, {})
        ends = self._checked_ends(messages)
        self._next |= ends
        (last,) = _placed(messages[-1:])
        where = last.topic, last.queue, last.offset, last.time_us
        return RelayRead(end, RelayBatch(messages, RelayPlace(self.store, end, *where)), ends)

    def ack(self, ends: QueueEnds) -> None:
        """Ack what is copied of each queue, so that retention may take it."""
        for (topic, queue), offset in ends.items():
            # If the topic was deleted meanwhile, the group has nothing to ack.
            with suppress(OffsetBeyond, BadName, UnknownGroup):
                self._group.ack_below(topic, queue, offset)

    def park(self, topic: str, queue: int, offset: int, reason: str) -> None:
        """Make a dead letter of a message that the target refuses."""
        self._group.reject(topic, queue, offset, reason=f"refused by the target: {reason}")

    def wait(self) -> None:
        """Wait a moment for messages that were not copied yet."""
        for topic in self.topics:
            for info in self.engine.queues(topic):  # a topic may get more queues
                self._next.setdefault((topic, info.queue), 0)
            self._next.setdefault((topic, 0), 0)
        with suppress(BadName):  # a topic was made again, with fewer queues
            self.engine.wait(self._next, timeout=WAIT_SECONDS)

    def lag(self) -> tuple[int, float]:
        """Return how many messages the group has not acked, and for how long."""
        infos = self._group.infos()
        seconds = max((each.behind_seconds for each in infos), default=0.0)
        return sum(each.unread for each in infos), seconds

    # --- is it the same directory? ---------------------------------------------------------------

    def _check_new(self) -> None:
        """Raise StoreDiffers if the group has acked something and the target knows nothing. The
        first messages of all may have been parked before anything was copied.
        """
        infos = self._group.infos()
        parked = max((each.dead_letters for each in infos), default=0)
        if sum(each.acked_below for each in infos) > parked:
            raise StoreDiffers(
                f"the group {self._group.name!r} has acked messages, and the target does not know "
                "how far it is: its place was lost, or it is another target. Nothing was changed. "
                "Give the relay another name, and all messages are copied into it."
            )

    def _check(self, place: RelayPlace) -> None:
        """Raise StoreDiffers if another message is at the position of the last message of
        `place`.
        """
        check_store(place, self.store)
        if self.engine.stats().position < place.position:
            raise StoreDiffers(
                f"the target is at position {place.position}, which this directory does not have: "
                "it is an older copy. Nothing was changed."
            )
        if place.topic == NO_TOPIC:
            return
        infos = {each.queue: each for each in self.engine.queues(place.topic)}
        info = infos.get(place.queue)
        if info is None or place.offset < info.first:
            return  # the topic was deleted, or retention has dropped the message: both are copied
        found = message_at(self.engine, place.topic, place.queue, place.offset)
        if found and found.time_us == place.time_us and found.position < place.position:
            return
        first = message_at(self.engine, place.topic, place.queue, info.first)
        if first and first.position < place.position:
            raise StoreDiffers(
                f"{place.topic}/{place.queue} offset {place.offset} is not the message that the "
                "target has: this directory is an older copy, to which something was written. "
                "Nothing was changed."
            )
        # Otherwise the first message is behind the target's position, so the topic was deleted and
        # made again. That is no error.

    def _checked_ends(self, messages: list[Message]) -> QueueEnds:
        """Return the ends of these messages. Raises StoreDiffers if messages before them are
        missing: a topic's own retention drops them without waiting for a group.
        """
        ends: QueueEnds = {}
        for origin, run in groupby(messages, attrgetter("origin")):  # a record of the journal
            offsets = [each.offset or 0 for each in run]
            queue = origin.topic, origin.queue
            missing = ends.get(queue, self._next.get(queue, 0))
            if offsets[0] > missing:
                raise StoreDiffers(
                    f"{origin.topic}/{origin.queue}: offsets {missing} to {offsets[0]} were dropped"
                    " by retention before they were copied. Nothing was changed."
                )
            ends[queue] = offsets[-1] + 1
        return ends


def check_store(place: RelayPlace, store: str) -> None:
    """Raise StoreDiffers if `place` is one of another directory than that with the id `store`."""
    if place.store != store:
        raise StoreDiffers(
            f"the target has messages of the directory {place.store}, and this is {store}. Nothing "
            "was changed."
        )


def ends_below(engine: Any, topics: list[str], position: int) -> QueueEnds:
    """Return for each queue the offset of its first message from `position` on."""
    found: QueueEnds = {}
    for topic in topics:
        for info in engine.queues(topic):
            low, high = info.first, info.next
            while low < high:
                middle = (low + high) // 2
                message = message_at(engine, topic, info.queue, middle)
                if message is None or message.position < position:
                    low = middle + 1
                else:
                    high = middle
            found[topic, info.queue] = low
    return found


def message_at(engine: Any, topic: str, queue: int, offset: int) -> MessageAt | None:
    """Return where a message is; None if it is not there, or not any more."""
    try:
        batch = engine.read_batch(topic, queue=queue, offset=offset, limit=1)
    except OffsetGone:
        return None
    return None if batch is None else next(_placed(batch.messages))


def place_of(message: Message) -> tuple[str, int, int]:
    """Return topic, queue and offset of a message that was read."""
    assert message.origin is not None and message.offset is not None, "it was read"
    return message.origin.topic, message.origin.queue, message.offset


def _placed(messages: list[Message]) -> Iterator[MessageAt]:
    """Yield the place of each message."""
    for message in messages:
        origin, offset = message.origin, message.offset
        assert origin is not None and offset is not None, "it was read"
        yield MessageAt(origin.topic, origin.queue, offset, origin.position, origin.time_us)
