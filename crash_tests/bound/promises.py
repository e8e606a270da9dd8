"""What producers have reported of their orders, and what must therefore be there.

An order is a row of the database and a message in each topic: all of it, or nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from crash_tests.oracle import Violation


class Promises:
    """The promises of one shop, over many lives."""

    def __init__(self) -> None:
        self.placed: set[str] = set()
        self.refused: dict[str, str] = {}  # order -> the error that refused it
        # Order in doubt -> what a check found out at once.
        self.doubtful: dict[str, str | None] = {}
        self.committed = 0  # how many orders in doubt were committed
        self.answers: Counter[str] = Counter()  # the answers of checkers

    @property
    def number(self) -> int:
        return len(self.placed) + len(self.refused) + len(self.doubtful)

    def compare(self, rows: Iterable[str], topics: Mapping[str, list[str]]) -> None:
        """Raise Violation unless the database and every topic have the same orders, and all that
        were promised.
        """
        there = set(rows)
        for topic, orders in topics.items():
            if len(orders) != len(set(orders)):
                raise Violation("I5", f"{topic} has an order twice")
            if set(orders) != there:
                raise Violation("agree", self._explained(there, set(orders), topic))
        if not self.placed <= there:
            raise Violation("I1", f"placed and gone: {sorted(self.placed - there)[:5]}")
        for order in there & self.refused.keys():
            raise Violation("I3", f"{order} was refused and is there: {self.refused[order]}")
        self.committed = len(there & self.doubtful.keys())
        for order, state in self.doubtful.items():
            if state is not None and (state == "committed") != (order in there):
                raise Violation("I4", f"{order} was found out to be {state}, and is not")

    def _explained(self, rows: set[str], messages: set[str], topic: str) -> str:
        order = min(rows ^ messages)
        where = "a row without its messages" if order in rows else "messages without their row"
        said = "nothing, it was under way"
        if order in self.placed:
            said = "placed"
        elif order in self.refused:
            said = f"refused: {self.refused[order]}"
        elif order in self.doubtful:
            said = f"in doubt, then {self.doubtful[order]}"
        return f"{order} is {where} ({topic}); said of it: {said}"
