"""What a group has in hand, as people are shown it: who holds which messages, and until when.

This module looks at the holds. It changes none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from itertools import islice
from math import inf

from fmq.basics.clock import as_datetime
from fmq.basics.results import HeldMessages, HeldState
from fmq.consume.claims.claim import Claim
from fmq.consume.claims.holds import FORMER, LATER, QueueHolds
from fmq.consume.claims.redelivery import GivenBack
from fmq.consume.groups.group_holds import GroupHolds
from fmq.tx.ledger.queues import Queue

PAGE_MAX = 1000
SET_US = 1_000_000  # the wall clock was set, if it went away from the other one by more

HeldPlace = tuple[str, bool, int, int]
"""Topic, whether its replayed dead letters are meant, queue, and offset."""


class HeldPages:
    """Pages of what a group has in hand, and of what it will try again."""

    def __init__(self, holds: GroupHolds) -> None:
        self._all_holds = holds
        self._ledger, self._clock = holds.ledger, holds.clock
        self._zero_us = self._zero_now()

    def page(self, group: str, after: HeldPlace | None, limit: int) -> list[HeldMessages]:
        """Return what `group` has from the place `after` on, at most `limit` or 1,000
        ranges. The caller
        holds the engine's lock.
        """
        most = min(limit, PAGE_MAX)
        return [*islice(self._all(group, after or ("", False, 0, 0)), most)]

    def _all(self, group: str, after: HeldPlace) -> Iterator[HeldMessages]:
        replays = {again: name for (of, name), again in self._ledger.again.items() if of == group}
        queues = [
            (
                (replays.get(queue.topic, queue.topic), queue.topic in replays, queue.number),
                (queue, holds),
            )
            for queue, holds in self._all_holds.of_group(group)
        ]
        for place, (queue, holds) in sorted(queues, key=lambda each: each[0]):
            if place >= tuple(after[:3]):
                yield from self._of(
                    group, place, queue, holds, after[3] * (place == tuple(after[:3]))
                )

    def _of(
        self, group: str, place: tuple[str, bool, int], queue: Queue, holds: QueueHolds, offset: int
    ) -> Iterator[HeldMessages]:
        topic, is_replayed, number = place
        now, zero_us = self._clock.monotonic(), self._zero()

        def time(monotonic: float) -> datetime:
            return as_datetime(zero_us + round(monotonic * 1_000_000))

        for each in holds.all_from(offset):
            what = topic, number, each.first, each.end - each.first
            if isinstance(each, GivenBack):
                until = time(each.due) if each.due > now else None
                yield HeldMessages(*what, "waits", each.count, until=until, replayed=is_replayed)
                continue
            until = None if each.deadline == inf else time(each.deadline)
            owner = each.owner
            found = HeldMessages(
                *(*what, self._state_of(owner), each.count), until=until, replayed=is_replayed
            )
            if isinstance(owner, Claim):
                who = owner.member
                host, pid, address = who.process or (None, None, None)
                found = replace(
                    found,
                    member=who.name,
                    host=host,
                    pid=pid,
                    address=address,
                    since=time(owner.since),
                )
            elif found.state == "transaction":
                found = replace(found, tx_id=self._tx_id(group, queue, each.first))
            yield found

    def _zero(self) -> int:
        """Return the time of day at which the monotonic clock was 0. It stays the same until the
        wall clock is set, so two looks say the same of one moment.
        """
        zero_us = self._zero_now()
        if abs(zero_us - self._zero_us) > SET_US:
            self._zero_us = zero_us
        return self._zero_us

    def _zero_now(self) -> int:
        return self._clock.time_us() - round(self._clock.monotonic() * 1_000_000)

    @staticmethod
    def _state_of(owner: object) -> HeldState:
        if isinstance(owner, Claim):
            return "held"
        if owner is FORMER:
            return "reserved"
        return "behind" if owner is LATER else "transaction"

    def _tx_id(self, group: str, queue: Queue, offset: int) -> str | None:
        """Return the prepared transaction that acks this message; None if it is not prepared."""
        for entry in self._ledger.undecided.values():
            for ack in entry.prepare.acks:
                of = ack.group, ack.topic, ack.queue
                if of == (group, queue.topic, queue.number) and ack.first <= offset < ack.end:
                    return entry.prepare.tx_id
        return None
