"""Moving what has expired to the dead letters of its group, for members that ask for that.

Each append acks messages as expired, so the group counts them, and holds their dead letters. It
need not be durable at once: what a crash takes is looked at again.
"""

from __future__ import annotations

import logging
from functools import partial

from fmq.consume.claims.claim import Claim
from fmq.consume.claims.ranges import Ranges
from fmq.consume.groups.burial import Burying
from fmq.errors import Damaged, NewerFormat, OffsetGone, TooLarge
from fmq.store.bytes.extension import EXPIRED_ACKS
from fmq.store.journal.journal import Append
from fmq.tx.commands.writer import Writer

logger = logging.getLogger("fmq.consumers")
REASON = "it had expired before the group got it"


def bury_expired(
    burying: Burying, writer: Writer, group: str, claim: Claim, expired: Ranges
) -> Ranges:
    """Make dead letters of these ranges of `claim`, which have expired. Return what cannot be
    copied, for the caller to count.
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
                return left  # retention has dropped it, or its topic was deleted
            except (Damaged, NewerFormat, TooLarge) as error:
                if size > 1:
                    size = 1  # the messages beside it can be copied
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
