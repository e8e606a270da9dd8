"""Serves TAKE: a client takes messages for good. They are acked before the client sees them.

If the answer is lost, the client repeats the request. The ack in the journal names the request, so
the same messages are read again, and not the next ones.
"""

from __future__ import annotations

from collections.abc import Callable

from fmq.basics.message import Message
from fmq.consume.calls.take import take_batch
from fmq.errors import OffsetGone
from fmq.server.host import Host
from fmq.server.members import ServedMember, served_poll
from fmq.steps.call_steps import Steps
from fmq.store.bytes.extension import Request, extension_of
from fmq.store.reading.batch import Batch
from fmq.tx.ledger.done_requests import Done
from fmq.wire.batches import encode_batch, fitting
from fmq.wire.claims import PIECE, TakeAsked
from fmq.wire.frames import AGAIN, Frame


class Taking:
    """Serves TAKE for the consumers of one client."""

    def __init__(self, host: Host, client: bytes, member: Callable[[int], ServedMember]) -> None:
        """`member` returns the consumer with a handle, or raises."""
        self._host = host
        self._client = client
        self._member = member

    def serve(self, asked: Frame, request: TakeAsked) -> Steps[bytes]:
        """Return a batch once its ack is durable. If there are no messages, return nothing at once.

        TAKE does not wait for messages. While a request that writes waits, the engine has to
        remember all later requests of its client.
        """
        parts = self._host.parts
        if asked.flags & AGAIN:
            done = parts.ledger.requests.find(self._client, request.sequence)
            if done:
                parts.writer.catch_up(done[-1].position)
                return self._read_again(*done)
        member = self._member(asked.handle)
        said = extension_of(Request(self._client, request.sequence, request.waiting))
        poll = served_poll(member.in_group, request.limit)
        how = request.sync, _piece, said, fitting
        return (yield from take_batch(member.in_group, poll, *how)) or member.news()

    def _read_again(self, done: Done) -> bytes:
        door, answer = self._host.door, []
        at, end = done.offset, done.offset + done.messages
        # The first answer was one batch. It may take several now, as a segment may end in between.
        while at < end:
            batch = door.read_batch(done.topic, done.queue, at, end - at, 0.0)
            if batch is None:  # the topic was deleted meanwhile
                raise OffsetGone(done.topic, done.queue, at, end)
            shown = self._host.parts.burying.shown_of(batch)
            if shown is None or shown:
                answer.append(_piece(batch, shown))
            at = batch.next
        return b"".join(answer)


def _piece(batch: Batch, shown: list[Message] | None) -> bytes:
    """Return messages as bytes."""
    said = encode_batch(batch, shown)
    return PIECE.pack(0, 1, len(said)) + said
