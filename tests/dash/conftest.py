"""One hanging system for the tests of a module: it only costs time to make."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import fmq
from tests.dash.dash_system import Reader, hanging_system, pages_of


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[fmq.Engine]:
    path = tmp_path_factory.mktemp("dash") / "shop"
    with hanging_system(path) as engine:
        yield engine


@pytest.fixture(scope="module")
def client(system: fmq.Engine) -> Iterator[fmq.RemoteEngine]:
    with fmq.connect(system.path, start=False) as client:
        yield client


@pytest.fixture
def reader(system: fmq.Engine, client: fmq.RemoteEngine) -> Reader:
    """A reader who has shown the token."""
    return Reader(pages_of(system.path, client)).enter()
