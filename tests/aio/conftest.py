"""Stories on a loop: with an engine of this process, and with one of another one over a socket."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import fmq
import fmq.aio
from fmq.testing import CrashDisk
from fmq.testing.shadow import Shadow
from tests.small import SHADOWS

Story = Callable[[fmq.aio.AsyncEngine], Awaitable[None]]
Run = Callable[[Story], None]
LOOPS = ["asyncio", "uvloop"]


def runner(kind: str) -> Callable[[Any], Any]:
    """Return what runs a coroutine on a new loop of this kind."""
    if kind == "asyncio":
        return asyncio.run
    uvloop: Any = pytest.importorskip("uvloop")
    return lambda coroutine: asyncio.Runner(loop_factory=uvloop.new_event_loop).run(coroutine)


@pytest.fixture(params=["open", "connect"])
def engine(request: Any, tmp_path: Path) -> Iterator[fmq.Engine]:
    """An engine whose stories run with a face of it, or with a connection to it."""
    if request.param == "open":
        with fmq.open("data", disk=CrashDisk(), background=False) as engine:
            SHADOWS.append(Shadow(engine))
            yield engine
        return
    with fmq.open(tmp_path / "data", fmq.Options(segment_bytes=1 << 20)) as engine:
        engine.serve()
        yield engine


@pytest.fixture(params=LOOPS)
def on_loop(request: Any, engine: fmq.Engine) -> Run:
    """Return a function that runs a story on a loop."""
    run = runner(request.param)

    async def story_of(story: Story) -> None:
        if engine.path == "data":
            await story(fmq.aio.of(engine))
            return
        async with fmq.aio.connect(engine.path, start=False) as face:
            await story(face)

    return lambda story: run(story_of(story))
