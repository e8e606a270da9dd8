"""A read-only engine beside the writer of a workload: it must see no damage, and what was sent."""

from __future__ import annotations

from contextlib import suppress

import fmq
from crash_tests.engines import PATH
from crash_tests.look import read_growing_lanes
from crash_tests.oracle import Lane, Oracle, Violation
from crash_tests.resources import Door, check_files, deleted_files
from fmq.arguments.options import Options
from fmq.engines.read_only_engine import ReadOnlyEngine
from fmq.errors import CheckpointLost, FmqError, NotAStore
from fmq.store.journal.durable_page import PAGE
from fmq.testing import CrashDisk, FaultDisk


class Follower:
    """A reader that is opened once there is a journal, and never again."""

    def __init__(
        self, disk: CrashDisk, options: Options, every: int = 1, *, pages: bool = True
    ) -> None:
        """Look only at each `every`-th call of `look`. Without `pages` the reader sees none, as on
        a remote file system.
        """
        self._door = Door(disk)
        self._disk = FaultDisk(self._door)
        if not pages:
            self._disk.fail("open", names=f"*/{PAGE}", persistently=True)
        self._options = options
        self._every = every
        self._asked = 0
        self._engine: ReadOnlyEngine | None = None
        self._read_to: dict[Lane, int] = {}

    def look(self, oracle: Oracle) -> None:
        """Raise Violation if the reader sees damage, or a message never sent or deleted."""
        self._asked += 1
        if self._asked % self._every:
            return
        lanes = self.lanes()
        oracle.check_joint({body for _, bodies in lanes.values() for body in bodies})
        for (topic, queue), (first, bodies) in lanes.items():
            known = max(first, self._read_to.get((topic, queue), 0))
            for offset, body in enumerate(bodies[known - first :], known):
                oracle.shown((topic, queue), offset, body, is_durable=True)
            self._read_to[topic, queue] = max(known, first + len(bodies))

    @property
    def shown(self) -> dict[Lane, int]:
        """Return how far each queue was shown so far."""
        return self._read_to.copy()

    def lanes(self) -> dict[Lane, tuple[int, list[bytes]]]:
        """Return everything that it shows; nothing before there is a journal."""
        # The writer may delete a file at any time. The reader closes it when it looks again.
        deleted_before = deleted_files(self._door)
        try:
            if self._engine is None:
                # A crash inside of a checkpoint may leave none: the next opening mends that.
                with suppress(NotAStore, CheckpointLost):
                    self._engine = fmq.open(PATH, self._options, read_only=True, disk=self._disk)
            if self._engine is None:
                return {}
            lanes = read_growing_lanes(self._engine)
        except FmqError as error:
            raise Violation("I19", f"a follower finds {type(error).__name__}: {error}") from error
        if self._engine.damage is not None:
            raise Violation("I19", f"a follower finds {self._engine.damage}")
        check_files(self._door, among=deleted_before)
        return lanes

    def close(self) -> None:
        if self._engine is not None:
            self._engine.close()
            check_files(self._door)


def check_still_shown(disk: CrashDisk, options: Options, shown: dict[Lane, int]) -> None:
    """Raise Violation if a reader after a kill shows less than one before the kill did."""
    try:
        with fmq.open(PATH, options, read_only=True, disk=disk) as reader:
            now = {(each.topic, each.queue): each.next for each in reader.queues()}
    except (NotAStore, CheckpointLost):
        if not shown:
            return
        now = {}
    less = {lane: (end, now.get(lane, 0)) for lane, end in shown.items() if now.get(lane, 0) < end}
    if less:
        raise Violation("I21", f"shown before the kill and after it: {less}")
