"""The tests of CPython for `queue.Queue`, with `fmq.compat.Queue`, in one process and as a client.

They come from the package `test` of the Python that runs them.
"""

from __future__ import annotations

import tempfile
import unittest
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, Literal

from test import test_queue as theirs  # type: ignore[import-not-found]

import fmq
from fmq.compat import Empty, Full, Queue, ShutDown

TOPICS = count()
OURS = SimpleNamespace(Empty=Empty, Full=Full, ShutDown=ShutDown, Queue=Queue)


class OnDirectory:
    """Makes queues of a directory of the class's own."""

    queue = OURS
    remote = False
    ack: ClassVar[Literal["get", "task_done"]] = "get"
    folder: ClassVar[tempfile.TemporaryDirectory[str]]
    own: ClassVar[fmq.Engine]
    where: ClassVar[Any]

    @classmethod
    def setUpClass(cls) -> None:
        cls.folder = tempfile.TemporaryDirectory()
        cls.own = fmq.open(Path(cls.folder.name) / "d", fmq.Options(sync="never"))
        cls.where = cls.own
        if cls.remote:
            cls.own.serve()
            cls.where = fmq.connect(cls.own.path)

    @classmethod
    def tearDownClass(cls) -> None:
        if cls.remote:
            cls.where.close()
        cls.own.close()
        cls.folder.cleanup()

    def type2test(self, maxsize: int = 0) -> Queue[Any]:
        return Queue(self.where, f"topic {next(TOPICS)}", maxsize, ack=self.ack)


class TestEngine(OnDirectory, theirs.BaseQueueTestMixin, unittest.TestCase):
    """An item is acked when it is taken."""


class TestEngineTaskDone(OnDirectory, theirs.BaseQueueTestMixin, unittest.TestCase):
    """An item is acked by `task_done`."""

    ack = "task_done"


class TestClient(OnDirectory, theirs.BaseQueueTestMixin, unittest.TestCase):
    """Through `fmq.connect`."""

    remote = True


class TestClientTaskDone(OnDirectory, theirs.BaseQueueTestMixin, unittest.TestCase):
    """Through `fmq.connect`, and an item is acked by `task_done`."""

    remote = True
    ack = "task_done"
