"""Strategies that count: no member gets more than one queue more than another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from fmq.allocation.checks import check_arguments

Q = TypeVar("Q")


def average(queues: Sequence[Q], members: Sequence[str]) -> dict[str, list[Q]]:
    """Give each member a run of neighbouring queues.

    Of five queues and two members, the first gets the queues 0, 1 and 2, the second 3 and 4. When
    a member joins or leaves, most queues may move. Raises BadAllocation.
    """
    check_arguments(queues, members)
    size, larger = divmod(len(queues), len(members))
    shares, start = {}, 0
    for index, member in enumerate(members):
        end = start + size + (index < larger)
        shares[member] = list(queues[start:end])
        start = end
    return shares


def by_circle(queues: Sequence[Q], members: Sequence[str]) -> dict[str, list[Q]]:
    """Deal the queues out in turn, as one deals cards.

    Of five queues and two members, the first gets the queues 0, 2 and 4, the second 1 and 3. When
    a member joins or leaves, most queues may move. Raises BadAllocation.
    """
    check_arguments(queues, members)
    step = len(members)
    return {member: list(queues[index::step]) for index, member in enumerate(members)}
