"""Messages that were read: consecutive ones of one queue, as bodies at once or as objects.

Bodies are cut out of their records when the batch is made, and their checksums verified;
`Message` objects are built only when they are asked for, because building one costs more than
reading it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat

from fmq.errors import Damaged
from fmq.message import Message, Origin, read_message
from fmq.store.columns import BadColumns, Columns
from fmq.store.kinds import Kind, Run
from fmq.store.record import BadRecord, columns_of, decode


class Piece:
    """One run within a batch: where its two records lie in memory, and which part is wanted."""

    __slots__ = ("body_at", "body_data", "body_position", "data", "first", "at", "position",
                 "skip", "take")  # fmt: skip

    def __init__(
        self,
        first: int,
        skip: int,
        take: int,
        position: int,
        data: bytes,
        at: int,
        body_position: int,
        body_data: bytes,
        body_at: int,
    ) -> None:
        self.first = first  # offset of the run's first message
        self.skip = skip
        self.take = take
        self.position = position
        self.data = data
        self.at = at
        self.body_position = body_position
        self.body_data = body_data
        self.body_at = body_at


class Batch:
    """Consecutive messages of one queue, from `offset` on."""

    __slots__ = ("_messages", "_pieces", "_seed", "bodies", "offset", "queue", "segment", "topic")

    def __init__(
        self,
        topic: str,
        queue: int,
        offset: int,
        bodies: list[bytes],
        pieces: list[Piece],
        seed: int,
        segment: str,
    ) -> None:
        self.segment = segment  # the file that they lie in
        self.topic = topic
        self.queue = queue
        self.offset = offset
        self.bodies = bodies
        self._pieces = pieces
        self._seed = seed
        self._messages: list[Message] | None = None

    def __len__(self) -> int:
        return len(self.bodies)

    def __iter__(self) -> Iterator[Message]:
        return iter(self.messages)

    @property
    def next(self) -> int:
        """The offset behind the last message."""
        return self.offset + len(self.bodies)

    @property
    def messages(self) -> list[Message]:
        """The messages with their keys, tags, headers and origin."""
        if self._messages is None:
            self._messages = []
            at = 0
            for piece in self._pieces:
                try:
                    self._messages += self._messages_of(piece, at)
                except (BadRecord, BadColumns) as error:
                    self._messages = None
                    raise Damaged(self.segment, piece.position, str(error)) from None
                at += piece.take
        return self._messages

    def _messages_of(self, piece: Piece, at: int) -> list[Message]:
        run = decode(piece.data, piece.at, piece.position, self._seed, bodies=False)
        assert isinstance(run, Run)
        holder = run
        if run.kind == Kind.REF_MESSAGE:
            holder = decode(
                piece.body_data, piece.body_at, piece.body_position, self._seed, bodies=False
            )  # type: ignore[assignment]
        columns = columns_of(piece.body_data, piece.body_at, holder)
        origin = Origin(
            run.topic,
            run.queue,
            run.position,
            run.time_us,
            run.tx_id or None,
            run.producer or None,
        )
        bodies = self.bodies[at : at + piece.take]
        offset = piece.first + piece.skip
        keys, tags, headers = _texts(columns, piece)
        if keys is None and tags is None and headers is None:
            return [
                read_message(body, None, None, None, number, origin)
                for number, body in enumerate(bodies, offset)
            ]
        nothing = repeat(None)
        return [
            read_message(body, key, tag, header, number, origin)
            for number, (body, key, tag, header) in enumerate(
                zip(bodies, keys or nothing, tags or nothing, headers or nothing, strict=False),
                offset,
            )
        ]


def _texts(columns: Columns, piece: Piece):  # type: ignore[no-untyped-def]
    keys, tags = columns.texts()
    headers = columns.headers()
    part = slice(piece.skip, piece.skip + piece.take)
    return keys and keys[part], tags and tags[part], headers and headers[part]
