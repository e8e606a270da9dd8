"""Serves ADVANCE: a client has handled a message, and asks for the next one.

The ack and the attempt of the next message are one append. So a client gets one answer for each
job. ADVANCE does not wait for messages: if the answer brings none, the client polls.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from fmq.errors import FmqError, LeaseLost
from fmq.server.members import ServedAdvance
from fmq.wire.claims import ADVANCED, AckAsked
from fmq.wire.frames import AGAIN, Frame

if TYPE_CHECKING:
    from fmq.server.consumer_requests import Consuming
    from fmq.server.session import Session


class Advancing:
    """Serves ADVANCE for the consumers of one client."""

    def __init__(self, session: Session, consuming: Consuming) -> None:
        self._session = session
        self._consuming = consuming

    def serve(self, asked: Frame, ack: AckAsked) -> None:
        """Answer once the ack is durable: whether there was something to ack, and the next message.

        A lost lease is no error here: the client goes on with the next message.
        """
        session = self._session
        member = self._consuming.member(asked.handle)
        if asked.flags & AGAIN and self._consuming.is_acked(member.group, ack):
            session.answer(asked, ADVANCED.pack(True))
            return
        handled = ack.claim, ack.first, ack.end
        try:
            found = member.advance(*handled)
        except LeaseLost:
            session.answer(asked, ADVANCED.pack(False))
            return
        except (FmqError, OSError):
            found = None  # the client polls next, and gets the error then
        if found is None:
            done = partial(session.answer, asked, ADVANCED.pack(True))
            session.order(asked, member.plan_ack(*handled), done, ack.sync)
        else:
            answer = partial(_answer, session, asked, found)
            session.order(asked, found.advance.plan, answer, ack.sync, found.undo)


def _answer(session: Session, asked: Frame, found: ServedAdvance) -> None:
    session.answer(asked, found.answer())
