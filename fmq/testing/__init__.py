"""Disks and clocks for tests: a disk whose power fails, a disk that fails, a clock that stands
still.

They are handed in where `fmq.open` takes a disk and a clock, and are part of fmq so that an
application can put its own use of it through the same crashes; `crash` does that for it. `outbox`
shows what an application would have sent.
"""

from fmq.testing.changes import Tear
from fmq.testing.crash_disk import CrashDisk
from fmq.testing.crash_report import CrashFailure, CrashReport
from fmq.testing.crashing import crash
from fmq.testing.fake_clock import FakeClock
from fmq.testing.fault_disk import FaultDisk
from fmq.testing.losses import Loss, Torn
from fmq.testing.outboxes import SentMessages, outbox
from fmq.testing.power import PowerLoss
from fmq.testing.world import World

__all__ = [
    "CrashDisk",
    "CrashFailure",
    "CrashReport",
    "FakeClock",
    "FaultDisk",
    "Loss",
    "PowerLoss",
    "SentMessages",
    "Tear",
    "Torn",
    "World",
    "crash",
    "outbox",
]
