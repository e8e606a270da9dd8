"""A strategy that follows a table which the user has written."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from fmq.allocation.checks import check_arguments, check_member
from fmq.errors import BadAllocation

Q = TypeVar("Q", bound=Hashable)


def by_configuration(table: Mapping[str, Iterable[Any]]) -> ByConfiguration:
    """Return the strategy that gives each member the queues that `table` lists for that member.

    Nothing is ever given to another member than the table says. So:

    - Nobody reads a queue that is not in the table.
    - Nobody reads the queues of a member that is away, until it is back.
    - A member that is not in the table gets nothing.
    - A queue in the table that the topic does not have is ignored, until the topic has it.

    Raises BadAllocation for a queue that is listed twice, and for an empty member name.
    """
    owner: dict[Any, str] = {}
    for member, queues in table.items():
        check_member(member)
        if isinstance(queues, (str, bytes)) or not isinstance(queues, Iterable):
            raise TypeError(
                f"the queues of {member!r} are several, not {type(queues).__name__}; pass a list "
                "of them."
            )
        for queue in queues:
            if queue in owner:
                both = f"{owner[queue]!r} and {member!r}"
                who = f"for {both}" if owner[queue] != member else f"twice for {member!r}"
                raise BadAllocation(
                    f"the table has the queue {queue!r} {who}. One member reads a queue: list it "
                    "once."
                )
            owner[queue] = member
    rows: dict[str, list[Any]] = {member: [] for member in sorted(table)}
    for queue in sorted(owner):
        rows[owner[queue]].append(queue)
    return ByConfiguration(tuple((member, tuple(row)) for member, row in rows.items()))


@dataclass(frozen=True, repr=False)
class ByConfiguration:
    """A strategy that `by_configuration` has made. `rows` are the members with their queues,
    sorted.
    """

    rows: tuple[tuple[str, tuple[Any, ...]], ...]

    @property
    def name(self) -> str:
        """Return the text that describes this strategy."""
        return f"by_configuration({ {member: [*queues] for member, queues in self.rows} })"

    def __repr__(self) -> str:
        return self.name

    def __call__(self, queues: Sequence[Q], members: Sequence[str]) -> dict[str, list[Q]]:
        """Return the queues of each member, in the order of `queues`. Raises BadAllocation."""
        check_arguments(queues, members)
        configured = {member: frozenset(row) for member, row in self.rows}
        return {
            member: [queue for queue in queues if queue in configured.get(member, ())]
            for member in members
        }
