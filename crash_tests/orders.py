"""Which operation of a disk is made to fail, and how."""

from __future__ import annotations

import errno
from dataclasses import asdict, dataclass
from typing import Any, Self

from fmq.testing import FaultDisk
from fmq.testing.faults import Operation

CHANGING: tuple[Operation, ...] = (
    "create",
    "write",
    "allocate",
    "sync",
    "rename",
    "remove",
    "directory sync",
)
READING: tuple[Operation, ...] = ("open", "read")


@dataclass(frozen=True, slots=True)
class Order:
    """The operation that fails: the `nth` one of its kind; with `persistently` all after
    it, too.
    """

    operation: Operation
    nth: int
    error: int
    short: int | None = None  # the bytes of a write that are written nevertheless
    persistently: bool = False
    spoils: bool = False  # True if nothing written to the file later becomes durable

    def give(self, disk: FaultDisk) -> None:
        disk.fail(
            self.operation,
            nth=self.nth,
            error=self.error,
            short=self.short,
            persistently=self.persistently,
            spoils=self.spoils,
        )

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "error": errno.errorcode[self.error]}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        return cls(**{**data, "error": getattr(errno, data["error"])})

    def __str__(self) -> str:
        extras = "".join(
            f", {name}"
            for name, wanted in (
                (f"short at {self.short}", self.short is not None),
                ("persistently", self.persistently),
                ("spoiling the file", self.spoils),
            )
            if wanted
        )
        return f"{self.operation} {self.nth} fails: {errno.errorcode[self.error]}{extras}"


def orders_for(operation: Operation, nth: int) -> list[Order]:
    """Return every error that the `nth` operation of this kind may meet."""
    orders = [Order(operation, nth, errno.EIO)]
    if operation in ("write", "sync"):
        orders.append(Order(operation, nth, errno.EIO, spoils=True))
    if operation == "write":
        orders.append(Order(operation, nth, errno.EIO, 37))
        # No byte of the write is visible.
        orders.append(Order(operation, nth, errno.EIO, 0, spoils=True))
        orders.append(Order(operation, nth, errno.ENOSPC, 37))
    if operation in ("create", "write", "allocate", "rename"):
        orders.append(Order(operation, nth, errno.ENOSPC))
    return orders
