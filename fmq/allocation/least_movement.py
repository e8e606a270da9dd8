"""A strategy that is even, and then moves as few queues as it can.

With `n` queues and `m` members, `n % m` members get one queue more than the others. A member that
has more than its share keeps its first queues, the rest is free, and free queues fill up the
members that have too few. So the number of queues that stay is the sum of the smaller of share and
former count. It is largest when the larger shares go to the members that can keep one more.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeVar

from fmq.allocation.checks import check_arguments

Q = TypeVar("Q", bound=Hashable)


@dataclass(frozen=True, repr=False)
class Sticky:
    """The strategy `sticky`: even, with as few queues moved as possible."""

    name: ClassVar[str] = "sticky"
    wants_before: ClassVar[Literal[True]] = True

    def __repr__(self) -> str:
        return self.name

    def __call__(
        self,
        queues: Sequence[Q],
        members: Sequence[str],
        before: Mapping[str, Iterable[Q]] | None = None,
    ) -> dict[str, list[Q]]:
        """Share the queues evenly, and leave as many as possible with the members that had them.

        The counts of two members differ by at most one, and no even result moves fewer queues.
        `before` is the former result. Its members may have left and its queues may be gone. If it
        gives a queue to two members, the first of `members` is believed. Without it the result is
        that of `average`. Raises BadAllocation.
        """
        check_arguments(queues, members)
        kept = kept_from(before or {}, queues, members)
        size, larger = divmod(len(queues), len(members))
        by_need = sorted(members, key=lambda member: len(kept[member]) <= size)
        room = dict.fromkeys(members, size) | dict.fromkeys(by_need[:larger], size + 1)
        owner = {queue: member for member in members for queue in kept[member][: room[member]]}
        free = iter([queue for queue in queues if queue not in owner])
        for member in members:
            for _ in range(room[member] - len(kept[member])):
                owner[next(free)] = member
        shares: dict[str, list[Q]] = {member: [] for member in members}
        for queue in queues:
            shares[owner[queue]].append(queue)
        return shares


sticky = Sticky()


def kept_from(
    before: Mapping[str, Iterable[Q]], queues: Sequence[Q], members: Sequence[str]
) -> dict[str, list[Q]]:
    """Return what each of `members` had of `queues`, in the order of `queues`."""
    owner: dict[Q, str] = {}
    for member in members:
        for queue in before.get(member, ()):
            owner.setdefault(queue, member)
    kept: dict[str, list[Q]] = {member: [] for member in members}
    for queue in queues:
        if queue in owner:
            kept[owner[queue]].append(queue)
    return kept
