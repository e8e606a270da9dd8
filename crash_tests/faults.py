"""A workload on a disk whose operations fail, one at a time, the application carrying on.

Whatever is refused is refused whole, what is unknown is whole or absent, what was acknowledged
survives the power cut that follows; and an engine that has failed acknowledges nothing more.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from random import Random

from crash_tests.engines import abandon, options_of, violation_of
from crash_tests.explore import Explorer
from crash_tests.oracle import Violation
from crash_tests.run import Run
from crash_tests.trial import Trial
from crash_tests.workload import Workload
from fmq.testing import CrashDisk, FaultDisk
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
STATES_MAX = 6


@dataclass(frozen=True, slots=True)
class Order:
    """Which operation fails, and how."""

    operation: Operation
    nth: int
    error: int
    short: int | None = None
    persistently: bool = False
    spoils: bool = False

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


class FaultTour:
    """Lets each operation of a workload fail in turn."""

    def __init__(self, workload: Workload, seed: int = 0) -> None:
        self.workload = workload
        self._explorer = Explorer(workload, seed)
        self._random = Random(f"{seed} {workload.name}")
        self.orders = 0
        self.states = 0
        self.unknown = 0

    def start(self) -> tuple[Run, FaultDisk]:
        run = self._explorer.start()
        run.survives = True
        disk = FaultDisk(run.disk)
        run.door = disk
        return run, disk

    def counts(self, operations: tuple[Operation, ...]) -> dict[Operation, int]:
        run, disk = self.start()
        run.go()
        abandon(run.engine)
        return {operation: disk.count(operation) for operation in operations}

    def all_orders(self, operations: tuple[Operation, ...]) -> Iterator[Order]:
        """Every operation of these kinds, with every error that it may meet."""
        for operation, count in self.counts(operations).items():
            for nth in range(count):
                yield Order(operation, nth, errno.EIO)
                if operation in ("write", "sync"):
                    yield Order(operation, nth, errno.EIO, spoils=True)
                if operation == "write":
                    yield Order(operation, nth, errno.EIO, 37)
                    yield Order(operation, nth, errno.ENOSPC, 37)
                if operation in ("create", "write", "allocate", "rename"):
                    yield Order(operation, nth, errno.ENOSPC)

    def check(self, order: Order) -> None:
        """Violation if the fault costs a promise."""
        self.orders += 1
        run, disk = self.start()
        disk.fail(
            order.operation,
            nth=order.nth,
            error=order.error,
            short=order.short,
            persistently=order.persistently,
            spoils=order.spoils,
        )
        try:
            run.go()
            self.unknown += run.unknown
            for state in self._ends(run.disk):
                self.states += 1
                trial = Trial(options_of(self.workload), state, run.oracle, [], self._random)
                trial.check()
            trial.live_on()
        except Exception as error:
            violation = violation_of(error)
            step = self.workload.steps[run.at] if 0 <= run.at < len(self.workload.steps) else "open"
            what = f"{violation.what}\n  {self.workload.name}: {order}; step {run.at}: {step}"
            raise Violation(violation.invariant, what) from error
        finally:
            abandon(run.engine)

    def _ends(self, disk: CrashDisk) -> Iterator[CrashDisk]:
        yield from islice(disk.states(self._random.randrange(1 << 30)), STATES_MAX)
        yield disk.after_kill()

    def persistent_full_disk(self) -> Iterator[Order]:
        """The disk is full from some moment on."""
        for operation, count in self.counts(("create", "allocate")).items():
            for nth in range(count):
                yield Order(operation, nth, errno.ENOSPC, persistently=True)
