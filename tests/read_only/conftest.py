"""Fixtures of these tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fmq import ReadOnlyEngine
from fmq.testing import CrashDisk
from tests.read_only.looking import looking
from tests.small import opened


@pytest.fixture
def disk() -> CrashDisk:
    return CrashDisk()


@pytest.fixture
def reader(disk: CrashDisk) -> Iterator[ReadOnlyEngine]:
    with opened(disk):
        pass
    with looking(disk) as reader:
        yield reader
