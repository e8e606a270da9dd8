"""Moving expired messages to the dead letters of their group, for members that ask for that.

Each append acks messages as expired, so that the group counts them, and holds their dead letters.
It need not be durable at once: after a crash, a poll finds the same messages expired again.
"""

from __future__ import annotations

import logging
from functools import partial

from fmq.consume.claims.claim import Claim
from fmq.consume.claims.ranges import Ranges
from fmq.consume.groups.burial import Burying
from fmq.errors import Damaged, NewerFormat, OffsetGone, TooLarge
from fmq.store.bytes.extension import EXPIRED_ACKS
from fmq.store.bytes.kinds import Append
from fmq.tx.commands.writer import Writer

logger = logging.getLogger("fmq.consumers")
REASON = "it had expired before the group got it"


def bury_expired(
    burying: Burying, writer: Writer, group: str, claim: Claim, expired: Ranges
) -> Ranges:
    """Make dead letters of the expired ranges of `claim`. Return the ranges that cannot be copied:
    the caller only counts them.
    """
    left: Ranges = []
    for at, end in expired:
        size = end - at
        while at < end:
            what = group, claim.queue, at, min(at + size, end), REASON, claim.holds.count_of
            try:
                for _, stop, append in burying.appends_of(*what, EXPIRED_ACKS):
                    plan = partial(_plan, writer, claim, at, stop)
                    writer.commit_queue.run(plan, append, False)
                    at = stop
            except OffsetGone:
                return left  # retention has dropped the messages, or the topic was deleted
            except (Damaged, NewerFormat, TooLarge) as error:
                if size > 1:
                    size = 1  # copy each message alone, so that only the faulty one is left
                    continue
                where = f"{claim.queue.topic}/{claim.queue.number} offset {at}"
                logger.warning("%s has expired, and is no dead letter: %s", where, error)
                left.append((at, at + 1))
                at += 1
    return left


def _plan(writer: Writer, claim: Claim, first: int, end: int, append: Append) -> None:
    """Plan the move of a range, unless the group was moved meanwhile. The caller holds the engine's
    lock.
    """
    if claim.holds.is_held_by(first, end, claim):
        writer.send(append)
