"""Runs a workload on a disk, up to its end or until the power fails.

`steps` knows what each step does, `carry_on` what becomes of a call that fails.
"""

from __future__ import annotations

from collections.abc import Callable
from weakref import WeakMethod

from crash_tests.carry_on import look_again, plain
from crash_tests.engines import PATH, abandon, open_engine, options_of, rules_of
from crash_tests.follower import Follower, check_still_shown
from crash_tests.oracle import Lane, Oracle, Violation
from crash_tests.resources import STEP_OPERATIONS_MAX, Door, check_files, check_reserved
from crash_tests.steps import STEPS
from crash_tests.workload import Workload
from fmq.consume.calls.consumer import Consumer
from fmq.engines.engine import Engine
from fmq.errors import Damaged, FmqError, NewerFormat, StorageError, StorageFull
from fmq.machine.disk import Disk, File
from fmq.testing import CrashDisk, FakeClock, PowerLoss
from fmq.tx.commands.transaction import Transaction

OPEN_AGAIN_MAX = 3


class Run:
    """One workload on one disk, or on several: each kill leaves a new one."""

    def __init__(
        self,
        workload: Workload,
        disk: CrashDisk,
        oracle: Oracle | None = None,
        crash_at: int | None = None,
    ) -> None:
        """`crash_at` is where `disk` loses its power; after a kill its successor does."""
        self.workload = workload
        self._crash_at = crash_at
        self._watcher: Callable[[Run], None] | None = None
        self.options = options_of(workload)
        self.oracle = oracle or Oracle(rules_of(workload))
        self.disk = disk
        self.door: Disk = disk
        self.clock = FakeClock()
        self.engine: Engine | None = None
        self.at = -1  # the step that is running
        self.first_step = 0  # the number of the first step; bodies are named after it
        self.survives = False  # True if it goes on after errors
        self.was_refused = False  # True if the last call about a unit was refused
        self.refused = 0  # calls that were refused
        self.unknown = 0  # calls whose outcome was unknown
        self.lost = ""  # the operation that met the power cut
        self.past: list[CrashDisk] = []  # the disks of processes that were killed
        self.transactions: dict[str, Transaction] = {}
        self.consumers: dict[str, Consumer] = {}
        self.followers: list[Follower] = []
        self.shown: dict[Lane, int] = {}  # how far the first follower was shown each queue
        self.step_operations_max = STEP_OPERATIONS_MAX
        # How many operations of the disk the running step may still make.
        self._operations_left = STEP_OPERATIONS_MAX
        self.exported = ""  # the segment that an export is reading
        self.pin: File | None = None

    @property
    def operations(self) -> int:
        return sum(disk.operations for disk in (*self.past, self.disk))

    @property
    def waits(self) -> bool:
        """Return whether a call that returns has made its effect durable."""
        return self.options.sync == "always"

    @property
    def live(self) -> Engine:
        assert self.engine is not None
        return self.engine

    def watch(self, watcher: Callable[[Run], None]) -> None:
        """Call `watcher` before each operation, with the disk as a power cut there would
        leave it.
        """
        self._watcher = watcher

    def follow(self) -> None:
        """Let read-only engines live beside the writer. One looks before each operation of the
        disk. The others look more and more seldom, so that more was dropped meanwhile. The second
        has no page.
        """
        self.followers = [
            Follower(self.disk, self.options, every, pages=every != 10) for every in (1, 10, 80)
        ]

    def unfollow(self) -> None:
        """Close the followers, and check that they have closed all their files."""
        for follower in self.followers:
            follower.close()
        self.followers = []

    def _watch_disk(self) -> None:
        """Count the operations of the disk, which refers to this run weakly. Consumers of a killed
        engine may keep a disk, which must not keep the run.
        """
        before = WeakMethod(self._before_operation)

        def before_operation(_: str) -> None:
            if (method := before()) is not None:
                method()

        self.disk.watch(before_operation)

    def _before_operation(self) -> None:
        self._operations_left -= 1
        if self._operations_left < 0:
            self.disk.stop()
            raise PowerLoss("it does not end")
        for follower in self.followers:
            follower.look(self.oracle)
        if self.followers:
            self.shown = self.followers[0].shown
        if self._watcher is not None:
            self._watcher(self)

    def go(self, between: Callable[[Run], None] | None = None) -> bool:
        """Run to the end, or until the power fails. Return whether it reached the end."""
        self._watch_disk()
        try:
            self.open()
            for at, step in enumerate(self.workload.steps, self.first_step):
                self.at, self._operations_left = at, self.step_operations_max
                self._step(step[0], *step[1:])
                self._check_resources()
                if between is not None:
                    between(self)
        except PowerLoss as error:
            if self._operations_left < 0:
                limit = f"{self.step_operations_max} operations"
                raise Violation("I18", f"step {self.at} does not end within {limit}") from None
            self.lost = self.lost or str(error)
            return False
        except StorageFull:
            # The application cannot open the directory, and goes away.
            if not self.survives or self.engine is not None:
                raise
            return False
        finally:
            if self.engine is not None and not self._has_power():
                abandon(self.engine)
        return True

    def _step(self, kind: str, *arguments: object) -> None:
        match kind:
            case "reopen":
                self._reopen()
            case "kill":
                self._kill()
            case _:
                STEPS[kind](self, *arguments)

    def _check_resources(self) -> None:
        check_reserved(self.live)
        check_files(self._writers_door)

    def _has_power(self) -> bool:
        try:
            self.disk.directory(PATH, make=False)
        except (PowerLoss, FmqError):
            return False
        return True

    def open(self) -> None:
        """Open the directory. If a fault that happens only once prevents that, open it again."""
        self.transactions, self.consumers = {}, {}
        self.engine = None
        for attempt in range(OPEN_AGAIN_MAX):
            try:
                self._writers_door = Door(self.disk) if self.door is self.disk else self.door
                self.engine = open_engine(self._writers_door, self.options, self.clock)
                return
            except (OSError, StorageError) as error:
                lasting = isinstance(error, (Damaged, NewerFormat))
                if not self.survives or lasting or attempt == OPEN_AGAIN_MAX - 1:
                    raise

    def close(self) -> None:
        """Close what is open when all steps are done. The power may fail even then."""
        try:
            self.live.close()
        except PowerLoss as error:
            self.lost = str(error)
        else:
            self.oracle.synced()
            check_files(self._writers_door)

    def _reopen(self) -> None:
        if not plain(self, self.live.close):
            return  # it has been opened again
        check_files(self._writers_door)
        if not self.survives:
            self.oracle.synced()
        self.open()
        if self.survives:
            look_again(self)

    def beside(self, disk: CrashDisk) -> Disk:
        """Return the door to a copy of the disk, for an engine that tries something."""
        return disk

    def after_kill(self, crash_at: int | None) -> CrashDisk:
        """Return the disk on which the next process finds what a kill has left."""
        return self.disk.after_kill(crash_at=crash_at)

    def _kill(self) -> None:
        old = self.disk
        left = None if self._crash_at is None else self._crash_at - self.operations
        self.disk = self.after_kill(left)
        self.past.append(old)
        old.stop()
        check_still_shown(self.disk.after_kill(), self.options, self.shown)
        self._watch_disk()
        if self.followers:
            self.unfollow()
            self.follow()
        if self.door is old:
            self.door = self.disk
        else:
            self.door.disk = self.disk  # type: ignore[attr-defined]
        abandon(self.engine)
        self.open()
        look_again(self)
