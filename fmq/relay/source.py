"""The side of a relay that reads: whole appends of some topics, and the group that holds them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from fmq.basics.message import Message
from fmq.errors import BadName, OffsetBeyond, OffsetGone, PositionGone, UnknownGroup
from fmq.relay.relay_errors import StoreDiffers
from fmq.relay.target import RelayBatch, RelayPlace

WAIT_SECONDS = 1.0  # a relay that waits for messages checks this often whether it should stop


class MessageAt(NamedTuple):
    """Where a message is, and when it was published."""

    topic: str
    queue: int
    offset: int
    position: int
    time_us: int


class RelaySource:
    """Reads topics of an engine for one relay."""

    def __init__(self, engine: Any, topics: list[str], group: str) -> None:
        self.engine = engine
        self.topics = topics
        self.store: str = engine.feedback.store
        for topic in topics:
            engine.create_group(group, topic, exist_ok=True)
        self._group = engine.group(group)
        # The offset of the next message of each queue that was not copied yet.
        self._next: dict[tuple[str, int], int] = {}
        # The ends of copied messages that the group has not acked yet.
        self._untold: dict[tuple[str, int], int] = {}

    def begin(self, place: RelayPlace | None) -> int:
        """Return the position after `place` where reading goes on. Ack what is copied. Raises
        StoreDiffers.
        """
        if place is None:
            self._check_new()
            self._next = self._ends(0)
            return 0
        self._check(place)
        self._next = self._ends(place.position)
        self._untold = self._next.copy()
        self.ack()
        return place.position

    def read(self, position: int, limit: int) -> tuple[int, RelayBatch | None]:
        """Return the position to go on from, and what was published up to it, if anything was.
        Raises StoreDiffers.
        """
        try:
            messages, end = self.engine.tail(position, topics=self.topics, limit=limit)
        except PositionGone as error:
            raise StoreDiffers(
                f"retention has dropped what was not copied yet: {error} Nothing was changed."
            ) from error
        if not messages:
            return end, None
        self._check_gaps(messages)
        *_, last = _placed(messages[-1:])
        where = last.topic, last.queue, last.offset, last.time_us
        return end, RelayBatch(messages, RelayPlace(self.store, end, *where))

    def copied(self, batch: RelayBatch) -> None:
        """Note that the target has `batch`. The next call of `ack` acks it for the group."""
        after = {(each.topic, each.queue): each.offset + 1 for each in _placed(batch.messages)}
        self._next |= after
        self._untold |= after

    def ack(self) -> None:
        """Ack what is copied, so that retention may take it."""
        for (topic, queue), offset in self._untold.items():
            # If the topic was deleted meanwhile, the group has nothing to ack.
            with suppress(OffsetBeyond, BadName, UnknownGroup):
                self._group.ack_below(topic, queue, offset)
        self._untold.clear()

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

    def lag(self) -> int:
        """Return how many messages the group has not acked."""
        return sum(each.unread for each in self._group.infos())

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
        if place.store != self.store:
            raise StoreDiffers(
                f"the target has messages of the directory {place.store}, and this is {self.store}."
                " Nothing was changed."
            )
        if self.engine.stats().position < place.position:
            raise StoreDiffers(
                f"the target is at position {place.position}, which this directory does not have: "
                "it is an older copy. Nothing was changed."
            )
        infos = {each.queue: each for each in self.engine.queues(place.topic)}
        info = infos.get(place.queue)
        if info is None or place.offset < info.first:
            return  # the topic was deleted, or retention has dropped the message: both are copied
        found = self._at(place.topic, place.queue, place.offset)
        if found and found.time_us == place.time_us and found.position < place.position:
            return
        first = self._at(place.topic, place.queue, info.first)
        if first and first.position < place.position:
            raise StoreDiffers(
                f"{place.topic}/{place.queue} offset {place.offset} is not the message that the "
                "target has: this directory is an older copy, to which something was written. "
                "Nothing was changed."
            )
        # Otherwise the first message is behind the target's position, so the topic was deleted and
        # made again. That is no error.

    def _check_gaps(self, messages: list[Message]) -> None:
        """Raise StoreDiffers if messages before these are missing. A topic's own retention drops
        them without waiting for a group.
        """
        after = self._next.copy()
        for each in _placed(messages):
            missing = after.get((each.topic, each.queue), 0)
            if each.offset > missing:
                raise StoreDiffers(
                    f"{each.topic}/{each.queue}: offsets {missing} to {each.offset} were dropped "
                    "by retention before they were copied. Nothing was changed."
                )
            after[each.topic, each.queue] = each.offset + 1

    def _ends(self, position: int) -> dict[tuple[str, int], int]:
        """Return for each queue the offset of its first message from `position` on."""
        found = {}
        for topic in self.topics:
            for info in self.engine.queues(topic):
                low, high = info.first, info.next
                while low < high:
                    middle = (low + high) // 2
                    message = self._at(topic, info.queue, middle)
                    if message is None or message.position < position:
                        low = middle + 1
                    else:
                        high = middle
                found[topic, info.queue] = low
        return found

    def _at(self, topic: str, queue: int, offset: int) -> MessageAt | None:
        """Return where a message is; None if it is not there, or not any more."""
        try:
            batch = self.engine.read_batch(topic, queue=queue, offset=offset, limit=1)
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
