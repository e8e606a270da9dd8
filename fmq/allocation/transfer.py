"""Strategies in a form that another process can read: the name and the arguments of each.

A name alone is a text. With arguments it is a list, as ["consistent_hash", 20] or
["by_room", ["east"], [[0, "east"], [1, "west"]]]. Tables are lists of rows. A function of the
program's has no such form, nor has a strategy that calls one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from fmq.allocation.configuration import ByConfiguration, by_configuration
from fmq.allocation.hash_ring import ConsistentHash, consistent_hash
from fmq.allocation.named import NAMES, by_name
from fmq.allocation.rooms import ByRoom, Nearby, RoomTable, by_room, nearby

Said: TypeAlias = str | list[Any]


def say(strategy: Callable[..., Any]) -> Said:
    """Return the strategy as values for another process. Raises TypeError if the strategy calls a
    function of the program.
    """
    for name, named in NAMES.items():
        if type(strategy) is type(named) and strategy == named:
            return name
    match strategy:
        case ConsistentHash(virtual_nodes, queue_key) if queue_key is str:
            return ["consistent_hash", virtual_nodes]
        case ByRoom(rooms, RoomTable(rows)):
            return ["by_room", [*rooms], [[*row] for row in rows]]
        case ByConfiguration(table):
            return ["by_configuration", [[member, [*queues]] for member, queues in table]]
        case Nearby(inner, RoomTable(queues), RoomTable(members)) if type(inner) is not Nearby:
            return ["nearby", say(inner), [[*row] for row in queues], [[*row] for row in members]]
    raise TypeError(
        f"strategy={strategy!r:.200}: the engine is another process and cannot call a function of "
        "this one. Nothing was changed; give a name or a strategy of fmq.allocation, with tables "
        "instead of functions."
    )


def strategy_said(said: Said) -> Callable[..., Any]:
    """Return the strategy that `said`, a result of `say`, describes. Raises BadAllocation."""
    if isinstance(said, str):
        return by_name(said)
    match said:
        case ["consistent_hash", virtual_nodes]:
            return consistent_hash(virtual_nodes)
        case ["by_room", rooms, queues]:
            return by_room(rooms, dict(queues))
        case ["by_configuration", table]:
            return by_configuration(dict(table))
    _, inner, queues, members = said
    return nearby(strategy_said(inner), dict(queues), dict(members))
