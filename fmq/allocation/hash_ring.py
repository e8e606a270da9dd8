"""Consistent hashing: a member that joins or leaves moves no queues between the others.

Each member has several points on a ring of 2**32 places, and each queue has one. A queue belongs
to the member of the first point at or after its own, around the ring. A place is the first four
bytes of an MD5, big-endian. RocketMQ computes the same places from the same texts.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import md5
from typing import Any, TypeVar

from fmq.allocation.checks import check_arguments
from fmq.allocation.description import describe
from fmq.errors import BadAllocation

Q = TypeVar("Q")

PLACE_BYTES = 4


def consistent_hash(
    virtual_nodes: int = 10, queue_key: Callable[[Any], str] = str
) -> ConsistentHash:
    """Return the strategy that finds each queue's member on a ring of hashes.

    `virtual_nodes` is the number of points that each member has on the ring. With more of them the
    shares are more even, and each call takes longer. They are seldom quite even: a member may get
    nothing. `queue_key` returns the text of a queue that is hashed. For the shares that RocketMQ
    gives, return what it prints: "MessageQueue [topic=T, brokerName=B, queueId=0]".

    Raises BadAllocation for fewer than one point, or a `queue_key` without a name (see describe).
    """
    return ConsistentHash(virtual_nodes, queue_key)


@dataclass(frozen=True, repr=False)
class ConsistentHash:
    """A strategy that `consistent_hash` has made."""

    virtual_nodes: int
    queue_key: Callable[[Any], str]

    def __post_init__(self) -> None:
        if type(self.virtual_nodes) is not int or self.virtual_nodes < 1:
            raise BadAllocation(
                f"virtual_nodes={self.virtual_nodes!r}: without a point on the ring no member "
                "gets a queue. Give each member one at least; 10 is the default."
            )
        describe(self.queue_key)

    @property
    def name(self) -> str:
        """Return the text that describes this strategy."""
        key = "" if self.queue_key is str else f", queue_key={describe(self.queue_key)}"
        return f"consistent_hash(virtual_nodes={self.virtual_nodes}{key})"

    def __repr__(self) -> str:
        return self.name

    def __call__(self, queues: Sequence[Q], members: Sequence[str]) -> dict[str, list[Q]]:
        """Return the queues of each member, in the order of `queues`. Raises BadAllocation.

        The order of the members matters only where two of their points have the same place: the
        later member has it.
        """
        check_arguments(queues, members)
        owners = {
            place_of(f"{member}-{number}"): member
            for member in members
            for number in range(self.virtual_nodes)
        }
        places = sorted(owners)
        shares: dict[str, list[Q]] = {member: [] for member in members}
        for queue in queues:
            index = bisect_left(places, place_of(self.queue_key(queue)))
            shares[owners[places[index % len(places)]]].append(queue)
        return shares


def place_of(text: str) -> int:
    """Return the place of `text` on the ring of hashes."""
    # Java encodes half of a surrogate pair as "?", too.
    data = text.encode("utf-8", "replace")
    return int.from_bytes(md5(data, usedforsecurity=False).digest()[:PLACE_BYTES], "big")
