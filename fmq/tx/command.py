"""A command that is not given to the commit queue yet. Who does that decides how to wait for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

T = TypeVar("T")


class Command(NamedTuple, Generic[T]):
    """What is to be written."""

    plan: Callable[[Any], object]
    """Plans it, under the engine's lock. It may refuse."""
    what: Any
    """The argument of `plan`."""
    done: Callable[[], T]
    """Called when it is durable; returns what the call returns."""
    size: int
    """Of its append, in bytes."""
