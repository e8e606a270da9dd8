"""What the tests start with: a clock that stands still, a disk in memory, an engine on both.

Whatever a test does with them, the directory that it leaves must be sound: fmq.check walks it
when the test ends. A test that damages a directory on purpose makes a disk of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import settings

import fmq
from fmq.testing import CrashDisk, FakeClock
from fmq.testing.shadow import Shadow
from tests.budget import SEED_IS_GIVEN, within_budget
from tests.small import SHADOWS

PATH = "data"

# Small, so that a few dozen messages meet every boundary there is.
OPTIONS = fmq.Options(
    segment_bytes=16 * 1024,
    checkpoint_bytes=8 * 1024,
    read_ahead_bytes=2 * 1024,
    reference_bytes_min=256,
)

# A test machine may be busy, and a slow example is no failure.
settings.register_profile(
    "fmq",
    deadline=None,
    print_blob=True,
    max_examples=within_budget(50),
    derandomize=not SEED_IS_GIVEN,
)
settings.load_profile("fmq")


@pytest.fixture(autouse=True)
def shadows() -> Iterator[None]:
    """Compare what each engine of the test remembers with what a replay of its bytes makes."""
    yield
    while SHADOWS:
        SHADOWS.pop().verify()


@pytest.fixture
def clock() -> FakeClock:
    """A clock that stands still until the test moves it."""
    return FakeClock()


@pytest.fixture
def disk() -> Iterator[CrashDisk]:
    """A disk in memory; what lies in its directory "data" when the test ends must be sound."""
    disk = CrashDisk()
    yield disk
    if disk.operations:
        report = fmq.check(PATH, disk=disk)
        assert report.ok, [str(problem) for problem in report.problems]


@pytest.fixture
def engine(disk: CrashDisk, clock: FakeClock) -> Iterator[fmq.Engine]:
    """An engine on `disk` and `clock`, without a thread of its own, with small limits."""
    with fmq.open(PATH, OPTIONS, disk=disk, clock=clock, background=False) as engine:
        SHADOWS.append(Shadow(engine))
        yield engine
