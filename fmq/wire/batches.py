"""Batches of messages in an answer: the runs that the messages come from, and one run with all of
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from fmq.basics.message import Message, Origin
from fmq.store.bytes.columns import Columns
from fmq.store.bytes.content import encode_bodies, encode_messages
from fmq.store.bytes.kinds import MESSAGE
from fmq.store.bytes.pieces import BadColumns
from fmq.store.reading.batch import Batch, messages_of
from fmq.wire.frames import BadFrame
from fmq.wire.runs import decode_runs, encode_runs
from fmq.wire.values import decode_front, encode_front

NOTHING = (None, None, None)
ANSWER_BYTES_MAX = 4 << 20  # limit for the bodies in one answer; a single message may be larger


class ReceivedRuns:
    """The runs of a batch that came over a connection. `places` are indexes into the list of
    origins.
    """

    def __init__(
        self, columns: Columns, first: int, origins: Sequence[Origin], counts: Sequence[int]
    ) -> None:
        self._columns = columns
        self._first = first
        self._origins = origins
        self.counts = counts

    @property
    def places(self) -> Sequence[int]:
        return range(len(self._origins))

    def messages(
        self, place: int, seed: int, bodies: Sequence[bytes], first: int, low: int
    ) -> list[Message]:
        """Return `bodies` as messages from the offset `low` on."""
        return messages_of(self._columns, bodies, self._origins[place], self._first, low)


def fitting(batch: Batch) -> Batch:
    """Return the first part of `batch` that fits into one answer: at least one message."""
    size = 0
    for count, body in enumerate(batch.bodies):
        size += len(body)
        if count and size > ANSWER_BYTES_MAX:
            return batch.part(batch.offset, count)
    return batch


class ReplayedRead(Batch):
    """A batch of replayed dead letters."""

    __slots__ = ("place", "shown")

    place: str
    """The internal topic where they are now, with the offsets of the batch."""
    shown: list[Message]
    """They as they were where they failed."""

    @property
    def messages(self) -> list[Message]:
        """Return the messages as they were in the queue where they failed."""
        return self.shown


def encode_batch(batch: Batch, shown: list[Message] | None = None) -> bytes:
    """Return the bytes of a batch. For replayed dead letters, `shown` are the original messages."""
    messages = batch.messages
    origins = []
    for origin, alike in groupby(messages, lambda message: message.origin):
        assert origin is not None
        origins.append([len(list(alike)), *origin[2:]])
    if any(each[1:4] != NOTHING or each[6:] != NOTHING for each in messages):
        run = encode_messages(messages, None)
    else:
        run = encode_bodies(batch.bodies, None)
    front: list[object] = [batch.offset, origins]
    topic = batch.topic
    if shown is not None:
        front.append([topic, [[each.offset, *(each.origin or ())] for each in shown]])
        topic = shown[0].topic or ""
    run.topic, run.queue = topic, batch.queue
    return encode_front(front, b"".join(encode_runs((run,))))


def decode_batch(data: bytes, at: int = 0) -> Batch:
    """Return the batch whose bytes begin at `data[at]`. Raises BadFrame."""
    try:
        (offset, found, *replayed), at = decode_front(data, at)
        (run,) = decode_runs(data, at, MESSAGE, "", 1 << 32)
        origins = [Origin(run.topic, run.queue, *where) for _, *where in found]
        columns = Columns.of(run)
        counts = [count for count, *_ in found]
        runs = ReceivedRuns(columns, offset, origins, counts)
        bodies = columns.bodies()
        if sum(counts) != len(bodies):
            raise BadFrame("the origins of a batch are not those of its messages")
        queue = 0 if replayed else run.queue
        what = run.topic, queue, offset, bodies, offset, [runs], 0
        return _replayed(what, *replayed) if replayed else Batch(*what)
    except (ValueError, TypeError, BadColumns) as error:
        raise BadFrame(f"a batch that cannot be read: {error}") from None


def _replayed(what: tuple[Any, ...], said: list[Any]) -> ReplayedRead:
    """Return a batch of replayed dead letters, made of the arguments of a Batch. Raises ValueError
    or TypeError.
    """
    place, where = said
    found = ReplayedRead(*what)
    found.place = place
    found.shown = [
        message._replace(offset=offset, origin=Origin(*origin))
        for message, (offset, *origin) in zip(Batch(*what).messages, where, strict=True)
    ]
    return found
