"""Applying the page ATTEMPTS in step with a replay of the journal."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from math import inf

from fmq.store.bytes.kinds import TriedRange
from fmq.store.journal.attempt_page import Counted, Noted, place_of
from fmq.tx.ledger.ledger import Ledger
from fmq.tx.ledger.transitions import tries_applied


class NotedAttempts:
    """The entries of a page that are not applied yet, from the oldest on."""

    def __init__(self, noted: Iterable[Noted] = ()) -> None:
        self.noted = deque(noted)
        self.counted: list[Counted] = []
        """What was applied."""
        self._places: dict[int, tuple[str, str]] = {}  # group and topic, by their hash

    def apply(self, ledger: Ledger, upto: float = inf) -> None:
        """Apply the attempts that were counted while the journal ended at or before `upto`. Leave
        out attempts of messages that a power cut has lost, or that were deleted with their topic.
        """
        noted = self.noted
        while noted and noted[0].position <= upto:
            each = noted.popleft()
            if each.place not in self._places:
                self._places = {place_of(*names): names for names in ledger.subscriptions}
            names = self._places.get(each.place)
            queue = None if names is None else ledger.queue(names[1], each.queue)
            if names is None or queue is None or not each.first < each.end <= queue.end:
                continue
            tried = TriedRange(*names, *each[1:6])
            tries_applied(ledger, (tried,))
            ledger.tried_us = max(ledger.tried_us, each.time_us)
            self.counted.append(Counted(tried, each.position, each.time_us))
