"""Each test of this folder gets engines whose calls go over frames."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import fmq
from fmq.testing import CrashDisk, FakeClock
from tests.conftest import OPTIONS, PATH
from tests.remote.over_frames import OverFrames
from tests.small import BETWEEN


@pytest.fixture(autouse=True)
def over_frames() -> Iterator[None]:
    """Let `opened` return clients."""
    BETWEEN.append(OverFrames)
    yield
    BETWEEN.clear()


@pytest.fixture
def engine(disk: CrashDisk, clock: FakeClock) -> Iterator[OverFrames]:
    """A client of an engine on `disk` and `clock`, with small limits."""
    served = fmq.open(PATH, OPTIONS, disk=disk, clock=clock, background=False)
    engine = OverFrames(served, clock)
    with engine:
        yield engine
