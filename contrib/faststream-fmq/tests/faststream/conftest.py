"""Skip these tests where FastStream is missing. Else: an engine for a broker, and a runner."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import fmq
import fmq.aio

SECONDS_MAX = 60.0  # a story waits no longer for anything


class SkippedModule(pytest.Module):
    """A module of tests that cannot be imported here."""

    def collect(self) -> Iterator[pytest.Item]:
        pytest.skip(
            "the tests of faststream-fmq need it: pip install faststream", allow_module_level=True
        )


def pytest_pycollect_makemodule(
    module_path: Path, parent: pytest.Collector
) -> pytest.Module | None:
    """Do not import tests whose imports would fail."""
    if find_spec("faststream") is not None:
        return None
    made: pytest.Module = SkippedModule.from_parent(parent, path=module_path)
    return made


Story = Callable[[Any], Awaitable[None]]


@pytest.fixture(params=["open", "served"])
def on_broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[Story], None]]:
    """Run a story with a broker on an engine of this process, and on one that is served."""
    from faststream_fmq import FmqBroker

    with fmq.open(tmp_path / "data", fmq.Options(segment_bytes=1 << 20)) as engine:
        if request.param == "served":
            engine.serve()

        async def told(story: Story) -> None:
            where: Any = tmp_path / "data" if request.param == "served" else fmq.aio.of(engine)
            async with asyncio.timeout(SECONDS_MAX), FmqBroker(where, logger=None) as broker:
                await story(broker)

        yield lambda story: asyncio.run(told(story))
