"""Taking messages: they are polled and acked in one call, for programs that never give back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fmq.basics.message import Message

if TYPE_CHECKING:
    from fmq.consume.calls.member import GroupMember


def take(member: GroupMember, limit: int, timeout: float, sync: bool | None) -> list[Message]:
    """Return up to `limit` messages of one queue with a durable ack; an empty list if none
    comes.
    """
    member.writer.commit_queue.waits(sync)  # raises TypeError for a wrong `sync`
    found = member.claim(limit, timeout, as_batch=True, in_one_piece=True)
    if found is None:
        return []
    claim, (batch,) = found
    try:
        messages = member.burying.shown_of(batch) or batch.messages
        member.ack(claim, batch.offset, batch.next, sync)
    except BaseException:
        # The program has not seen the messages. If their ack was written, the engine has failed and
        # holds nothing.
        member.try_give_back(claim, batch.offset, batch.next)
        raise
    return messages
