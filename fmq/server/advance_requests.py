"""Serves ADVANCE: a client has handled a message, and asks for the next one.

The ack and the attempt of the next message are one append. So a client gets one answer for each
job. ADVANCE does not wait for messages: if the answer brings none, the client polls.
"""

from __future__ import annotations

from contextlib import suppress

from fmq.consume.calls.advance import Handled, advancing, is_worth_it, keep
from fmq.errors import FmqError, LeaseLost
from fmq.server.members import ServedMember, served_poll
from fmq.steps.call_steps import Durable, Steps
from fmq.wire.claims import ADVANCED, AckAsked


def serve_advance(member: ServedMember, ack: AckAsked, *, takes: bool) -> Steps[bytes]:
    """Return, once the ack is durable, whether there was something to ack, and a message.

    A lost lease is no error here: the client goes on with the next message. Without `takes` there
    is none.
    """
    in_group = member.in_group
    try:
        claim = member.claim_of(ack.claim, ack.first, ack.end)
    except LeaseLost:
        return ADVANCED.pack(False)
    handled, found = Handled(claim, ack.first, ack.end), None
    if takes and is_worth_it(in_group):
        with suppress(FmqError, OSError):  # the client polls next, and gets the error then
            keep(in_group, handled)
            found = yield from in_group.taking(served_poll(in_group, 1))
    if found is None:
        yield Durable(in_group.plan_ack, in_group.acking(*handled), ack.sync)
        return ADVANCED.pack(True)
    one = yield from advancing(in_group, handled, *found, ack.sync)
    next_claim, (batch,) = found
    said = ADVANCED.pack(one.is_acked)
    return said + member.piece(next_claim, batch) if one.left else said
