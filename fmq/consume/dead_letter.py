"""The dead letters of one group, as a program sees, replays and purges them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Protocol

from fmq.clock import as_us
from fmq.errors import BadOption, UnknownDeadLetter
from fmq.results import DeadLetter
from fmq.tx.names import check_count, check_flag, check_time

PAGE_BYTES = 1 << 20
"""About how many bytes of bodies are read at once."""


class DeadLetterCalls(Protocol):
    """The calls that the handle makes, of an engine here or in another process."""

    def page(self, group: str, after: int, limit: int) -> list[DeadLetter]:
        """Return dead letters with numbers above `after`, as many as may be read at once."""

    def replay(self, group: str, numbers: list[int] | None) -> int:
        """Redeliver these dead letters to `group`, or all of them. Return how many."""

    def purge(self, group: str, numbers: list[int] | None, before_us: int | None) -> int:
        """Drop these dead letters of `group`, or all of them. Return how many."""

    def count(self, group: str) -> int:
        """Return how many dead letters `group` has."""


class EngineDeadLetters:
    """The calls of an engine of this process. Each first checks that the engine is open."""

    def __init__(
        self, calls: DeadLetterCalls, check: Callable[[], None], after: Callable[[], None]
    ) -> None:
        self._calls = calls
        self._check = check
        self._after = after

    def page(self, group: str, after: int, limit: int) -> list[DeadLetter]:
        """Return dead letters with numbers above `after`."""
        self._check()
        return self._calls.page(group, after, limit)

    def replay(self, group: str, numbers: list[int] | None) -> int:
        """Redeliver dead letters to `group`."""
        self._check()
        done = self._calls.replay(group, numbers)
        self._after()
        return done

    def purge(self, group: str, numbers: list[int] | None, before_us: int | None) -> int:
        """Drop dead letters of `group`."""
        self._check()
        done = self._calls.purge(group, numbers, before_us)
        self._after()
        return done

    def count(self, group: str) -> int:
        """Return how many dead letters `group` has."""
        self._check()
        return self._calls.count(group)


class DeadLetters:
    """The dead letters of a group, made by `engine.dead_letters`."""

    def __init__(self, group: str, calls: DeadLetterCalls) -> None:
        self._group = group
        self._calls = calls

    @property
    def group(self) -> str:
        return self._group

    def __len__(self) -> int:
        return self.count()

    def __bool__(self) -> bool:
        return True

    def count(self) -> int:
        """Return how many there are."""
        return self._calls.count(self._group)

    def list(self, *, limit: int = 100, after: int | None = None) -> list[DeadLetter]:
        """Return up to `limit` of them by their numbers, those above `after` only."""
        limit = check_count("limit", limit)
        at = -1 if after is None else check_count("after", after, 0)
        found: list[DeadLetter] = []
        while len(found) < limit:
            page = self._calls.page(self._group, at, limit - len(found))
            if not page:
                break
            found += page
            at = page[-1].number
        return found

    def __iter__(self) -> Iterator[DeadLetter]:
        """Yield all, read in pages."""
        at = -1
        while page := self._calls.page(self._group, at, 1000):
            yield from page
            at = page[-1].number

    def get(self, number: int) -> DeadLetter:
        """Return one; raise UnknownDeadLetter if there is none of this number."""
        number = check_count("number", number, 0)
        page = self._calls.page(self._group, number - 1, 1)
        if not page or page[0].number != number:
            raise UnknownDeadLetter(self._group, number)
        return page[0]

    def replay(self, numbers: int | Iterable[int] | None = None) -> int:
        """Redeliver those with these `numbers`, or all, to this group alone. Return how many.

        Each is given to a consumer that takes from the topic that it came from, whatever the filter
        of the group is by now, and its attempts begin anew. Raises UnknownDeadLetter.
        """
        return self._calls.replay(self._group, _numbers(numbers))

    def purge(
        self,
        numbers: int | Iterable[int] | None = None,
        *,
        before: datetime | None = None,
        all: bool = False,
    ) -> int:
        """Drop those with these `numbers`, or that died `before` a time, or all. Return how many.

        They cannot be restored. Raises UnknownDeadLetter.
        """
        if (numbers is not None) + (before is not None) + check_flag("all", all) != 1:
            raise BadOption(
                "purge takes one of numbers, before= and all=True: what it drops is gone. Nothing "
                "was changed."
            )
        before_us = None if before is None else as_us(check_time("before", before))
        return self._calls.purge(self._group, _numbers(numbers), before_us)

    def __repr__(self) -> str:
        return f"<DeadLetters of {self._group!r}>"


def _numbers(given: int | Iterable[int] | None) -> list[int] | None:
    if given is None:
        return None
    is_text = isinstance(given, (str, bytes, bytearray))
    each = given if isinstance(given, Iterable) and not is_text else (given,)
    return [*dict.fromkeys(check_count("number", number, 0) for number in each)]
