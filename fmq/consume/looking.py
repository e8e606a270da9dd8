"""The handles of groups, topics and dead letters of a directory that is only read.

What looks works. What would write raises ReadOnly, and so does what only the engine process knows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from fmq.consume.changing import At
from fmq.consume.dead_pages import DeadLetterPages
from fmq.errors import ReadOnly
from fmq.results import DeadLetter, MemberInfo


def refuse(path: str, name: str) -> NoReturn:
    """Raise ReadOnly for the call `name`."""
    raise ReadOnly(
        f"{path}: opened with read_only=True, so there is no {name}(); open it without read_only "
        "to write. Nothing was changed."
    )


class NoChanges:
    """What a handle of a group or topic would change."""

    def __init__(self, path: str) -> None:
        self._path = path

    def seek(self, group: str, topic: str, number: int | None, at: At) -> None:
        """Raise ReadOnly."""
        refuse(self._path, "seek")

    def skip(self, group: str, topic: str, number: int, offset: int, count: int) -> None:
        """Raise ReadOnly."""
        refuse(self._path, "skip")

    def set_filter(self, group: str, topic: str, wanted: str) -> None:
        """Raise ReadOnly."""
        refuse(self._path, "set_filter")

    def delete(self, group: str) -> None:
        """Raise ReadOnly."""
        refuse(self._path, "delete")

    def add_queues(self, topic: str, count: int) -> None:
        """Raise ReadOnly."""
        refuse(self._path, "add_queues")

    def retain(self, topic: str, seconds: float | None) -> None:
        """Raise ReadOnly."""
        refuse(self._path, "retain")

    def delete_topic(self, topic: str) -> None:
        """Raise ReadOnly."""
        refuse(self._path, "delete")

    def members(self, group: str) -> list[MemberInfo]:
        """Raise ReadOnly: no record says who the members are."""
        raise ReadOnly(
            f"{self._path}: opened with read_only=True, and only the process that has the "
            f"directory open knows the members of {group!r}: ask with fmq.connect(path)."
        )


class LettersToLookAt:
    """The dead letters of all groups, each time read from what the journal says by then."""

    def __init__(self, path: str, pages: Callable[[], DeadLetterPages]) -> None:
        self._path = path
        self._pages = pages

    def page(self, group: str, after: int, limit: int) -> list[DeadLetter]:
        """Return dead letters with numbers above `after`."""
        return self._pages().page(group, after, limit)

    def count(self, group: str) -> int:
        """Return how many dead letters `group` has."""
        return self._pages().count(group)

    def replay(self, group: str, numbers: list[int] | None) -> int:
        """Raise ReadOnly."""
        refuse(self._path, "replay")

    def purge(self, group: str, numbers: list[int] | None, before_us: int | None) -> int:
        """Raise ReadOnly."""
        refuse(self._path, "purge")
