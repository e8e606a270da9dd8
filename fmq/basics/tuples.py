"""Makes named tuples quickly, for code that runs for every message."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T", bound=tuple[Any, ...])


def tuple_maker(kind: type[T]) -> Callable[[Iterable[Any]], T]:
    """Return a function that makes a `kind` of the values of all of its fields, in C. Calling
    `kind` itself runs a Python function, which is slower.
    """
    return partial(tuple.__new__, kind)
