"""Asking for the dead letters of a group of an engine in another process."""

from __future__ import annotations

from fmq.remote.link import Link
from fmq.results import DeadLetter


class RemoteDeadLetters:
    """What the handle of a group's dead letters asks of the engine process.

    A call may be made twice, if its first answer is lost. So a call of its own first checks that
    the named letters are there. After that, letters that are gone count as done.
    """

    def __init__(self, link: Link) -> None:
        self._link = link

    def page(self, group: str, after: int, limit: int) -> list[DeadLetter]:
        """Return dead letters with numbers above `after`."""
        found: list[DeadLetter] = self._link.call("page_of_dead", group, after, limit)
        return found

    def replay(self, group: str, numbers: list[int] | None) -> int:
        """Give dead letters back to `group`."""
        self._check(group, numbers)
        done: int = self._link.call("replay_dead", group, numbers)
        return done if numbers is None else len(numbers)

    def purge(self, group: str, numbers: list[int] | None, before_us: int | None) -> int:
        """Drop dead letters of `group`."""
        self._check(group, numbers)
        done: int = self._link.call("purge_dead", group, numbers, before_us)
        return done if numbers is None else len(numbers)

    def count(self, group: str) -> int:
        """Return how many dead letters `group` has."""
        found: int = self._link.call("count_dead", group)
        return found

    def _check(self, group: str, numbers: list[int] | None) -> None:
        if numbers is not None:
            self._link.call("check_dead", group, numbers)
