"""The strategies that a user can name by a string."""

from __future__ import annotations

from typing import Final

from fmq.allocation.even import average, by_circle
from fmq.allocation.hash_ring import consistent_hash
from fmq.allocation.least_movement import sticky
from fmq.allocation.strategy import Strategy, StrategyWithBefore
from fmq.errors import BadAllocation

NAMES: Final[dict[str, Strategy | StrategyWithBefore]] = {
    "average": average,
    "by_circle": by_circle,
    "consistent_hash": consistent_hash(),
    "sticky": sticky,
}


def by_name(name: str) -> Strategy | StrategyWithBefore:
    """Return the strategy called `name`. Raises BadAllocation, which lists the names that exist."""
    if not isinstance(name, str):
        raise TypeError(f"a strategy's name is a str, not {type(name).__name__}.")
    try:
        return NAMES[name]
    except KeyError:
        raise BadAllocation(
            f"there is no strategy {name!r}. Use one of {', '.join(NAMES)}, or pass a function, "
            "such as fmq.allocation.by_configuration(table)."
        ) from None
