"""How the queues of a topic are shared among the members of a group.

A strategy is a function of the queues and the members. It returns the queues of each member:

    >>> from fmq.allocation import average
    >>> average([0, 1, 2, 3, 4], ["a", "b"])
    {'a': [0, 1, 2], 'b': [3, 4]}

The same arguments always give the same result, so every process that knows the queues and the
members comes to the same one. Pass both in the same order everywhere, best sorted. Every member is
in the result, with an empty list if it gets nothing.

`average`, `by_circle`, `consistent_hash`, `by_room` and `nearby` give what RocketMQ's strategies of
these names give. `sticky` moves as few queues as it can, and `by_configuration` follows a table.
All of them raise BadAllocation for arguments that cannot be shared, and change nothing.
"""

from fmq.allocation.configuration import by_configuration
from fmq.allocation.description import describe
from fmq.allocation.even import average, by_circle
from fmq.allocation.hash_ring import consistent_hash
from fmq.allocation.least_movement import sticky
from fmq.allocation.named import NAMES, by_name
from fmq.allocation.rooms import by_room, nearby
from fmq.allocation.strategy import Strategy, StrategyWithBefore, allocate, wants_before

__all__ = [
    "NAMES",
    "Strategy",
    "StrategyWithBefore",
    "allocate",
    "average",
    "by_circle",
    "by_configuration",
    "by_name",
    "by_room",
    "consistent_hash",
    "describe",
    "nearby",
    "sticky",
    "wants_before",
]
