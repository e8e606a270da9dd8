"""Strategies that know in which room, or data centre, a queue and a member are."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from fmq.allocation.checks import check_arguments
from fmq.allocation.description import describe
from fmq.allocation.strategy import call, wants_before
from fmq.errors import BadAllocation

Q = TypeVar("Q", bound=Hashable)
T = TypeVar("T", bound=Hashable)


def by_room(
    rooms: Collection[str], queue_room: Callable[[Any], str | None] | Mapping[Any, str]
) -> ByRoom:
    """Return the strategy that shares only the queues of some rooms, evenly among all members.

    `queue_room` is a table, such as {0: "east", 1: "west"}, or a function that returns the room of
    a queue, or None for a queue that is in no room. Nobody reads a queue outside of `rooms`. Which
    room a member is in does not matter. Through fmq.connect it has to be a table.

    Each member gets a run of neighbouring queues. What is left over is dealt out from the first
    member on, one queue each. Raises BadAllocation if `rooms` is empty.
    """
    if isinstance(rooms, str):
        raise TypeError(f"rooms={rooms!r}: are several, not str; pass a list of them.")
    return ByRoom(tuple(sorted(set(rooms))), room_function("queue", queue_room))


@dataclass(frozen=True, repr=False)
class ByRoom:
    """A strategy that `by_room` has made: only queues in some rooms are shared."""

    rooms: tuple[str, ...]
    queue_room: Callable[[Any], str | None]

    def __post_init__(self) -> None:
        if not self.rooms:
            raise BadAllocation(
                "rooms is empty, so nobody would read any queue. Name the rooms whose queues the "
                "group reads."
            )
        describe(self.queue_room)

    @property
    def name(self) -> str:
        """Return the text that describes this strategy."""
        return f"by_room(rooms={[*self.rooms]}, queue_room={describe(self.queue_room)})"

    def __repr__(self) -> str:
        return self.name

    def __call__(self, queues: Sequence[Q], members: Sequence[str]) -> dict[str, list[Q]]:
        """Return the queues of each member. Raises BadAllocation."""
        check_arguments(queues, members)
        here = [queue for queue in queues if self.queue_room(queue) in self.rooms]
        size = len(here) // len(members)
        left_over = here[size * len(members) :]
        return {
            member: here[index * size : (index + 1) * size] + left_over[index : index + 1]
            for index, member in enumerate(members)
        }


def nearby(
    inner: Callable[..., Any],
    queue_room: Callable[[Any], str] | Mapping[Any, str],
    member_room: Callable[[str], str] | Mapping[str, str],
) -> Nearby:
    """Return the strategy in which a member of a queue's own room reads it, if there is such a
    member.

    The strategy `inner` shares the queues of each room among the members of that room. It shares
    the queues of a room without members among all members, one such room after the other.

    A room is what a function returns, or what a table says. Through fmq.connect both have to be
    tables. Queues and members without a row in their table are in one more room, together. The
    strategy raises BadAllocation for a queue or a member whose function returns None or "".
    """
    queues, members = room_function("queue", queue_room), room_function("member", member_room)
    return Nearby(inner, queues, members)


@dataclass(frozen=True, repr=False)
class Nearby:
    """A strategy that `nearby` has made: members read the queues in their own room."""

    inner: Callable[..., Any]
    queue_room: Callable[[Any], str]
    member_room: Callable[[str], str]

    def __post_init__(self) -> None:
        for part in (self.inner, self.queue_room, self.member_room):
            describe(part)

    @property
    def name(self) -> str:
        """Return the text that describes this strategy."""
        return (
            f"nearby({describe(self.inner)}, queue_room={describe(self.queue_room)}, "
            f"member_room={describe(self.member_room)})"
        )

    @property
    def wants_before(self) -> bool:
        """Return whether the inner strategy also gets the former result."""
        return wants_before(self.inner)

    def __repr__(self) -> str:
        return self.name

    def __call__(
        self,
        queues: Sequence[Q],
        members: Sequence[str],
        before: Mapping[str, Iterable[Q]] | None = None,
    ) -> dict[str, list[Q]]:
        """Return the queues of each member; queues in its own room come first. Raises
        BadAllocation.
        """
        check_arguments(queues, members)
        queues_in = by_their_room("queue", queues, self.queue_room)
        members_in = by_their_room("member", members, self.member_room)
        shares: dict[str, list[Q]] = {member: [] for member in members}
        for room in sorted(queues_in, key=lambda room: (room not in members_in, room)):
            readers = members_in.get(room, members)
            for member, share in call(self.inner, queues_in[room], readers, before).items():
                shares[member] += share
        return shares


def by_their_room(
    what: str, values: Sequence[T], room_of: Callable[[T], str | None]
) -> dict[str, list[T]]:
    """Return `values`, sorted into their rooms. Raises BadAllocation for a value without a room."""
    found: dict[str, list[T]] = {}
    for value in values:
        room = room_of(value)
        if not room and not isinstance(room_of, RoomTable):
            raise BadAllocation(
                f"{what}_room({value!r}) returned {room!r}, and every {what} must be in a room. "
                "Return one for it, if only a room of its own."
            )
        found.setdefault(room or "", []).append(value)
    return found


@dataclass(frozen=True, repr=False)
class RoomTable:
    """A table of rooms that is called like a function: it returns the room of a queue or member.

    `rows` are sorted.
    """

    rows: tuple[tuple[Any, str], ...]

    @property
    def name(self) -> str:
        """Return the text that describes this table."""
        return f"{dict(self.rows)}"

    def __repr__(self) -> str:
        return self.name

    @cached_property
    def _rooms(self) -> dict[Any, str]:
        return dict(self.rows)

    def __call__(self, value: Any) -> str:
        """Return the room of `value`, or "" if the table has no row for it."""
        return self._rooms.get(value, "")


def room_function(what: str, rooms: Callable[[Any], T] | Mapping[Any, str]) -> Callable[[Any], Any]:
    """Return `rooms` as a function: a table becomes a RoomTable. Raises TypeError or
    BadAllocation.
    """
    if not isinstance(rooms, Mapping):
        return rooms
    for value, room in rooms.items():
        if not isinstance(room, str):
            raise TypeError(f"{what}_room[{value!r}] is a str, not {type(room).__name__}.")
        if not room:
            raise BadAllocation(
                f"{what}_room has an empty room for {value!r}. Name a room, or leave the row out."
            )
    return RoomTable(tuple(sorted(rooms.items())))
