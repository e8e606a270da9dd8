"""What one poll takes of a queue whose group has limits by key: a message of each key in turn.

All keys are read up to the end of the queue, or until very many messages wait (KeyTurns), so that a
key far behind a long backlog has its turn, too. Before anything is handed out, the keys of all that
the group has in hand are read: they count.
"""

from __future__ import annotations

from fmq.consume.claims.holds import QueueHolds
from fmq.consume.claims.key_turns import TURNS_WAITING_MAX, KeyTurns
from fmq.consume.claims.ordered_claims import LOOKED_AT_ONCE_MAX, InOrder, LookWanted, next_look
from fmq.consume.limits.key_rooms import KeyRooms
from fmq.tx.ledger.queues import Queue


def turns_of(holds: QueueHolds, filter_text: str) -> KeyTurns:
    """Return the turns of a queue. Make them if there are none."""
    if not isinstance(holds.order, KeyTurns):
        holds.begin_turns(filter_text)
    turns = holds.order
    assert isinstance(turns, KeyTurns)
    if turns.filter != filter_text:
        turns.begin_again(holds.floor, filter_text)
    return turns


def unknown_in_hand(holds: QueueHolds, queue: Queue, filter_text: str) -> LookWanted | None:
    """Return the range whose keys have to be read because some of it is in hand; None if the keys
    of all that is in hand are known.
    """
    turns = turns_of(holds, filter_text)
    end = max((hold.end for hold in holds.held()), default=0)
    if end > turns.looked or turns.looks_again:
        wanted = next_look(holds, queue, min(end, queue.next), LOOKED_AT_ONCE_MAX)
        if wanted is not None and turns.unreadable != wanted.first:
            return wanted
    return None


def next_by_key(
    holds: QueueHolds, queue: Queue, filter_text: str, limit: int, now: float, rooms: KeyRooms
) -> InOrder | LookWanted | None:
    """Return the next at most `limit` messages to hand out, or the range whose keys have to be read
    first. The caller adds a hold for what it gets.
    """
    turns = turns_of(holds, filter_text)
    turns.drop_below(queue.first)
    if turns.waiting < TURNS_WAITING_MAX:
        wanted = next_look(holds, queue, queue.next, LOOKED_AT_ONCE_MAX)
        if wanted is not None and (not turns.waiting or turns.unreadable != wanted.first):
            return wanted
    given_back = holds.redeliveries
    if given_back:
        given_back.find_due(now, queue.next)
        while (due := given_back.take(queue.next, None)) is not None:
            for offset in range(due.first, due.end):
                turns.wait_again(offset, due.count)

    def is_gone(offset: int) -> bool:
        return offset < queue.first or holds.is_acked(offset)

    ranges, tries = turns.take_turns(limit, is_gone, rooms.has_room, rooms.took)
    if not ranges:
        if turns.waiting:
            rooms.note_full(holds)
        return None
    return InOrder(ranges, tries, filter_text if tries else "")
