"""Each test of this folder runs on each face of an engine: over frames, and on loops.

The client over frames is a lazy one, and that of a loop connects at once. What a test has left is
also read without a lock, and a read-only engine has to show the same.

The tests themselves are those of the files whose names the modules have, where they run on an
engine of this process. `differences.py` has what is another one on a face, and why.

A test with more than CASES_MAX cases runs each of them on one face, because its cases differ below
the faces: in the byte that is damaged, or in the limit of a poll. So each face still has a case of
each test. FMQ_BUDGET=2 runs all on each.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

import fmq
from fmq.testing import CrashDisk, FakeClock
from fmq.testing.awaited import AwaitedEngine
from tests.budget import BUDGET, SEED
from tests.conftest import OPTIONS, PATH
from tests.faces.differences import CANNOT_RUN, MEANT, Difference, difference
from tests.remote.over_frames import OverFrames
from tests.small import BETWEEN

Face = Callable[[fmq.Engine, FakeClock], Any]
FACES: dict[str, Face] = {
    "frames": partial(OverFrames, lazy=True),
    "aio": partial(AwaitedEngine, over_frames=False),
    "aio-frames": partial(AwaitedEngine, over_frames=True),
}
CASES_MAX = 2


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deal out the cases of each large test among the faces, another way with each FMQ_SEED."""
    tests: dict[tuple[Path, str], list[Any]] = defaultdict(list)
    here = {path for path in {item.path for item in items} if Path(__file__).parent in path.parents}
    for item in items:
        if isinstance(item, pytest.Function) and item.path in here:
            tests[item.path, item.originalname].append(item)
    left_out = {item for same in tests.values() for item in same if BUDGET <= 1}
    left_out -= {item for same in tests.values() for item in dealt(same)}
    config.hook.pytest_deselected(items=[*left_out])
    items[:] = [item for item in items if item not in left_out]


def dealt(items: list[Any]) -> list[Any]:
    """Return those of one test's `items` that are to run: all, or each case on one face."""
    cases: dict[str, dict[str, Any]] = defaultdict(dict)
    for item in items:
        name, case = item.callspec.params["face"], item.callspec.id
        assert case.startswith(name), "an autouse fixture comes first in the names of cases"
        cases[case.removeprefix(name)][name] = item
    if len(cases) <= CASES_MAX:
        return items
    shuffled = [*cases.values()]
    Random(f"{SEED} {items[0].originalname}").shuffle(shuffled)
    found = []
    for number, on in enumerate(shuffled):
        # A face of which `differences.py` says that this test skips it has no share.
        names = [
            name for name in on if different(on[name], name, [*MEANT, *CANNOT_RUN]) is None
        ] or [*on]
        found.append(on[names[number % len(names)]])
    return found


def different(test: Any, face: str, among: list[Difference]) -> str | None:
    """Return why `among` names `test`, an item or a request, for `face`."""
    return difference(among, face, test.module.__name__.split(".")[-1], test.function.__name__)


@pytest.fixture(autouse=True, params=FACES)
def face(request: pytest.FixtureRequest) -> Iterator[Face]:
    """Let `opened` return engines of one face."""
    reason = different(request, request.param, CANNOT_RUN)
    if reason is not None:
        pytest.skip(reason)
    reason = different(request, request.param, MEANT)
    if reason is not None:
        # A difference that is gone, so that the test passes, is to be taken off the list.
        request.applymarker(pytest.mark.xfail(reason=reason, strict=True))
    BETWEEN.append(FACES[request.param])
    yield FACES[request.param]
    BETWEEN.clear()


@pytest.fixture
def engine(face: Face, disk: CrashDisk, clock: FakeClock) -> Iterator[Any]:
    """An engine on `disk` and `clock`, with small limits."""
    engine = face(fmq.open(PATH, OPTIONS, disk=disk, clock=clock, background=False), clock)
    with engine:
        yield engine
        left = None
        with suppress(fmq.FmqError):  # the test has closed it, or let it fail
            left = shown(engine)
    if left is not None:
        with fmq.open(PATH, disk=disk, clock=clock, read_only=True) as reader:
            assert shown(reader) == left


def shown(engine: Any) -> dict[str, Any]:
    """Return what an engine shows of everything that lasts."""
    queues, groups = engine.queues(), engine.groups()
    names = {each.group for each in groups}
    return {
        "queues": queues,
        "groups": groups,
        "undecided": engine.undecided(),
        "marks": engine.marks(prefix=""),
        "delayed": engine.delayed(limit=999),
        "dead": {name: engine.dead_letters(name).list() for name in names},
        "messages": {
            (each.topic, each.queue): engine.read(
                each.topic, queue=each.queue, offset=each.first, limit=999
            )
            for each in queues
        },
    }
