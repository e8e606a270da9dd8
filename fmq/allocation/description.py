"""The text of a strategy, by which members in different processes compare theirs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fmq.errors import BadAllocation

OWN = "fmq.allocation."


def describe(strategy: Callable[..., Any]) -> str:
    """Return the text of a strategy, such as "average" or "consistent_hash(virtual_nodes=10)".

    Two strategies of fmq with equal arguments have the same text, in every process. A function of
    the user's is described by its module and its name, "shop.rooms.by_country", so give two
    functions two names: all lambdas of one module look alike. An object may say its own text in an
    attribute `name`. Raises BadAllocation for an object that has neither.
    """
    name = getattr(strategy, "name", None)
    if isinstance(name, str) and name:
        return name
    qualified = getattr(strategy, "__qualname__", None)
    if not isinstance(qualified, str):
        raise BadAllocation(
            f"an object of the type {type(strategy).__name__} has no name by which another "
            "process could know it. Use a function, or give the object an attribute `name` that "
            "says what it does."
        )
    module = getattr(strategy, "__module__", None) or ""
    if not module or module.startswith(OWN) or module == "builtins":
        return qualified
    return f"{module}.{qualified}"
