"""A command for the commit queue. The caller that hands it over decides how to wait for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

T = TypeVar("T")


class Command(NamedTuple, Generic[T]):
    """An append to plan, and what to return once it is durable."""

    plan: Callable[[Any], object]
    """Plans it, under the engine's lock. It may refuse."""
    what: Any
    """The argument of `plan`."""
    done: Callable[[], T]
    """Called when it is durable; returns what the call returns."""
    size: int
    """Of its append, in bytes."""
