"""A plugin of pytest: the tests of taskiq that need a queue get a broker of ours.

Their `AsyncQueueBroker` puts tasks into an `asyncio.Queue`. Ours puts them into a directory.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncGenerator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from taskiq import AckableMessage, BrokerMessage

import fmq
import fmq.aio
from fmq.compat.taskiq import FmqBroker

_stack = ExitStack()


class DirectoryBroker(FmqBroker):
    """Begins at its first task, as the tests start no broker, and waits until all are acked."""

    def __init__(self) -> None:
        folder = _stack.enter_context(tempfile.TemporaryDirectory())
        self._own = _stack.enter_context(fmq.open(Path(folder) / "jobs"))
        super().__init__(self._own.path)
        self._own.serve()

    async def _begun(self) -> None:
        if self._engine is None:
            self._engine = await fmq.aio.connect(self._own.path)

    async def kick(self, message: BrokerMessage) -> None:
        await self._begun()
        await super().kick(message)

    async def listen(self) -> AsyncGenerator[bytes | AckableMessage, None]:
        await self._begun()
        async for each in super().listen():
            yield each

    async def wait_tasks(self) -> None:
        """Wait until each task is acked."""
        while any(info.unread for info in self._own.groups("taskiq")):
            await asyncio.sleep(0.01)


@pytest.fixture(autouse=True)
def _ours(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Replace `AsyncQueueBroker` of the module."""
    if hasattr(request.module, "AsyncQueueBroker"):
        monkeypatch.setattr(request.module, "AsyncQueueBroker", DirectoryBroker)
    yield
    _stack.close()
