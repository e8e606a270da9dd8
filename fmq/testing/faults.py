"""Which operation of a disk fails, and how. This module counts operations and knows nothing of
files.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from threading import Lock
from typing import Literal, Protocol, get_args
from weakref import WeakSet

Operation = Literal[
    "open",
    "create",
    "read",
    "write",
    "allocate",  # write_zeros counts as "allocate", too: both ask for room
    "sync",
    "rename",
    "remove",
    "mkdir",
    "directory sync",
    # A close that fails has closed the file or the directory all the same, as in the kernel.
    "close",
    "unlock",  # an unlock that fails has unlocked all the same
]


@dataclass(slots=True)
class Order:
    """The operation that is to fail: the `nth` one of its kind. `met` counts those so far."""

    operation: Operation
    nth: int
    names: str
    persistently: bool = False
    met: int = 0

    def strikes(self, operation: Operation, path: str) -> bool:
        """Count the operation if it is of this order's kind. Return whether the order is due."""
        if operation != self.operation or not fnmatchcase(path, self.names):
            return False
        self.met += 1
        return self.met == self.nth + 1 or (self.persistently and self.met > self.nth)


@dataclass(slots=True, kw_only=True)
class Fault(Order):
    """An order to let an operation fail."""

    error: int
    short: int | None
    spoils: bool

    def error_at(self, path: str) -> OSError:
        return OSError(self.error, os.strerror(self.error), path)


@dataclass(slots=True, kw_only=True)
class Interruption(Order):
    """An order to call a function of the test before an operation."""

    act: Callable[[], object]


class Named(Protocol):
    """An open file that must know its present name."""

    path: str


class Faults:
    """All orders, and the counts of operations. Any thread may call it."""

    def __init__(self) -> None:
        self._orders: list[Fault | Interruption] = []
        self._met: Counter[tuple[Operation, str]] = Counter()
        self._open: WeakSet[Named] = WeakSet()
        self._lock = Lock()

    def add(self, order: Fault | Interruption) -> None:
        assert order.operation in get_args(Operation), order.operation
        with self._lock:
            self._orders.append(order)

    def clear(self) -> None:
        with self._lock:
            self._orders.clear()

    def count(self, operation: Operation, names: str) -> int:
        with self._lock:
            return sum(
                times
                for (met, path), times in self._met.items()
                if met == operation and fnmatchcase(path, names)
            )

    def strike(self, operation: Operation, path: str) -> Fault | None:
        """Count an operation and make the calls that are due before it. Return its fault, or None.

        Raises what such a call raises.
        """
        with self._lock:
            self._met[operation, path] += 1
            # Not any(): each order has to count the operation, even after one that applies.
            due = [order for order in self._orders if order.strikes(operation, path)]
        for order in due:
            if isinstance(order, Interruption):
                order.act()
        return next((order for order in due if isinstance(order, Fault)), None)

    def meet(self, operation: Operation, path: str) -> None:
        """Count an operation that happens as a whole or not at all. Raise its fault if one is
        due.
        """
        fault = self.strike(operation, path)
        if fault is not None:
            raise fault.error_at(path)

    def watch(self, file: Named) -> None:
        """Tell `file` when its path changes."""
        with self._lock:
            self._open.add(file)

    def renamed(self, old: str, new: str) -> None:
        """Give open files their new path, under which they are counted and fail from now on."""
        with self._lock:
            for file in self._open:
                if file.path == old:
                    file.path = new
