"""Each test of this folder runs on each face of an engine: over frames, and on loops.

The tests themselves are those of the files whose names the modules have, where they run on an
engine of this process. `differences.py` has what is another one on a face, and why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

import fmq
from fmq.testing import CrashDisk, FakeClock
from fmq.testing.awaited import AwaitedEngine
from tests.conftest import OPTIONS, PATH
from tests.faces.differences import difference
from tests.remote.over_frames import OverFrames
from tests.small import BETWEEN

Face = Callable[[fmq.Engine, FakeClock], Any]
FACES: dict[str, Face] = {
    "frames": OverFrames,
    "aio": partial(AwaitedEngine, over_frames=False),
    "aio-frames": partial(AwaitedEngine, over_frames=True),
}


@pytest.fixture(autouse=True, params=FACES)
def face(request: pytest.FixtureRequest) -> Iterator[Face]:
    """Let `opened` return engines of one face."""
    reason = difference(
        request.param, request.module.__name__.split(".")[-1], request.function.__name__
    )
    if reason is not None:
        pytest.skip(reason)
    BETWEEN.append(FACES[request.param])
    yield FACES[request.param]
    BETWEEN.clear()


@pytest.fixture
def engine(face: Face, disk: CrashDisk, clock: FakeClock) -> Iterator[Any]:
    """An engine on `disk` and `clock`, with small limits."""
    engine = face(fmq.open(PATH, OPTIONS, disk=disk, clock=clock, background=False), clock)
    with engine:
        yield engine
