"""The tests of huey for each of its storages, with `FmqStorage`, in one process and as a client."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

os.environ.setdefault("HUEY_SLOW_TESTS", "1")  # read by the next import

from huey.tests.base import BaseTestCase
from huey.tests.test_storage import StorageTests

import fmq
from fmq.compat.huey import FmqHuey


class OnEngine:
    """Makes an app whose storage is a directory of the test's own."""

    remote = False

    def get_huey(self) -> FmqHuey:
        self.folder = tempfile.TemporaryDirectory()
        self.engine = fmq.open(Path(self.folder.name) / "jobs")
        where: dict[str, Any] = {"engine": self.engine}
        if self.remote:
            self.engine.serve()
            where = {"path": self.engine.path}
        return FmqHuey(utc=False, read_timeout=0.05, **where)

    def tearDown(self) -> None:
        super().tearDown()  # type: ignore[misc]
        self.huey.storage.close()  # type: ignore[attr-defined]
        self.engine.close()
        self.folder.cleanup()


class TestEngine(OnEngine, StorageTests, BaseTestCase):
    """The storage of an engine in this process."""


class TestClient(OnEngine, StorageTests, BaseTestCase):
    """The storage of a directory, which goes through `fmq.connect`."""

    remote = True
