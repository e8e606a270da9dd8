"""Checks of the queues and members that a strategy is given."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar

from fmq.errors import BadAllocation

T = TypeVar("T", bound=Hashable)


def check_arguments(queues: Sequence[Hashable], members: Sequence[str]) -> None:
    """Raise BadAllocation unless these queues can be shared among these members.

    There must be at least one queue and one member, and none may be given twice. Raises TypeError
    for a member that is not a str.
    """
    for what, given in (("queues", queues), ("members", members)):
        if isinstance(given, (str, bytes)):
            raise TypeError(f"{what} are several, not {type(given).__name__}; pass a list of them.")
    for member in members:
        check_member(member)
    if not members:
        raise BadAllocation(
            "there are no members, so nobody could read the queues. Share them once a member has "
            "joined."
        )
    if not queues:
        raise BadAllocation(
            "there are no queues to share. Pass the queues of the topic: it has one at least "
            "after the first send."
        )
    twice = first_repeated(members)
    if twice is not None:
        raise BadAllocation(
            f"the member {twice!r} is given twice. Give each member a name of its own."
        )
    repeated = first_repeated(queues)
    if repeated is not None:
        raise BadAllocation(f"the queue {repeated!r} is given twice. Pass each queue once.")


def check_member(member: str) -> None:
    """Raise TypeError for a name that is not a str, BadAllocation for an empty one."""
    if not isinstance(member, str):
        raise TypeError(f"a member's name is a str, not {type(member).__name__}.")
    if not member:
        raise BadAllocation("a member has an empty name. Give each member a name of its own.")


def first_repeated(values: Iterable[T]) -> T | None:
    """Return the first value that occurs a second time, or None."""
    seen = set()
    for value in values:
        if value in seen:
            return value
        seen.add(value)
    return None
