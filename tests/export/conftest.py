"""Journals to export, and an export to look at."""

from pathlib import Path

import pytest

from tests.export.reading import Out
from tests.export.strange import fill_strangely
from tests.spark.filled import fill


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A journal with a bit of everything, for tests that only read."""
    path = str(tmp_path_factory.mktemp("export") / "shop")
    fill(path)
    return path


@pytest.fixture(scope="session")
def strange(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A journal with names and texts that are hard to write down, for tests that only read."""
    path = str(tmp_path_factory.mktemp("export") / "strange")
    fill_strangely(path)
    return path


@pytest.fixture
def out(tmp_path: Path) -> Out:
    return Out(tmp_path / "out")
