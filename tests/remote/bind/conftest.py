"""Each test of this folder gets a client of an engine that this process serves on its socket."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import fmq
from fmq.remote.remote_engine import RemoteEngine
from tests.bind.conftest import address, database

__all__ = ["address", "database", "engine"]


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[RemoteEngine]:
    """A client. No threads ask: a test that prepares must be the first to ask."""
    with (
        fmq.open(tmp_path / "shop", fmq.Options(checker_threads=0)) as served,
        served.serve(),
        fmq.connect(tmp_path / "shop", start=False) as client,
    ):
        yield client
