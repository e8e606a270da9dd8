"""Serves TAKE: a client takes messages for good. They are acked before the client sees them.

If the answer is lost, the client repeats the request. The ack in the journal names the request, so
the same messages are read again, and not the next ones.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from fmq.consume.claims.claim import Claim
from fmq.errors import OffsetGone
from fmq.server.members import ServedMember
from fmq.store.bytes.extension import Request, extension_of
from fmq.store.reading.batch import Batch
from fmq.tx.ledger.done_requests import Done
from fmq.wire.batches import encode_batch
from fmq.wire.claims import PIECE, TakeAsked
from fmq.wire.frames import AGAIN, Frame

if TYPE_CHECKING:
    from fmq.server.consumer_requests import Consuming
    from fmq.server.session import Session


class Taking:
    """Serves TAKE for the consumers of one client."""

    def __init__(self, session: Session, consuming: Consuming) -> None:
        self._session = session
        self._consuming = consuming
        self._parts = session.host.parts

    def serve(self, asked: Frame, request: TakeAsked) -> None:
        """Answer with a batch once its ack is durable. If there is no message, answer at once with
        nothing.

        TAKE does not wait for messages. While a request that writes waits, the engine has to
        remember all later requests of its client.
        """
        client = self._session.client
        if asked.flags & AGAIN:
            done = self._parts.ledger.requests.find(client, request.sequence)
            if done:
                self._parts.writer.catch_up(done[-1].position)
                self._session.answer(asked, self._read_again(*done))
                return
        member = self._consuming.member(asked.handle)
        found = member.take(request.limit)
        if not isinstance(found, tuple):
            self._session.answer(asked, found or b"")
            return
        claim, batch = found
        piece = self._piece(batch)
        if not piece:
            _give_back(member, claim, batch)
            self._session.answer(asked, b"")
            return
        said = Request(client, request.sequence, request.waiting)
        plan = member.plan_take(claim, batch, extension_of(said))
        done_now = partial(self._session.answer, asked, piece)
        undo = partial(_give_back, member, claim, batch)
        self._session.order(asked, plan, done_now, request.sync, undo)

    def _read_again(self, done: Done) -> bytes:
        door, answer = self._session.host.door, []
        at, end = done.offset, done.offset + done.messages
        # The first answer was one batch. It may take several now, as a segment may end in between.
        while at < end:
            batch = door.read_batch(done.topic, done.queue, at, end - at, 0.0)
            if batch is None:  # the topic was deleted meanwhile
                raise OffsetGone(done.topic, done.queue, at, end)
            answer.append(self._piece(batch))
            at = batch.next
        return b"".join(answer)

    def _piece(self, batch: Batch) -> bytes:
        """Return messages as bytes; b"" if they are gone."""
        shown = self._parts.burying.shown_of(batch)
        if shown is not None and not shown:
            return b""
        said = encode_batch(batch, shown)
        return PIECE.pack(0, 1, len(said)) + said


def _give_back(member: ServedMember, claim: Claim, batch: Batch) -> None:
    member.give_back(claim, batch)
