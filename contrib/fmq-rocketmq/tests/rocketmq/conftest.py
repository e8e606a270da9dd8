"""Skip these tests where grpc is missing, and let pytest know the fixture `rocketmq`."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from fmq_rocketmq.pytest_plugin import rocketmq as rocketmq

MISSING = [
    each for each in ("grpc", "google.protobuf") if find_spec(each.partition(".")[0]) is None
]


class SkippedModule(pytest.Module):
    """A module of tests that cannot be imported here."""

    def collect(self) -> Iterator[pytest.Item]:
        pytest.skip(
            "the tests of fmq-rocketmq need grpc: pip install grpcio protobuf",
            allow_module_level=True,
        )


def pytest_pycollect_makemodule(
    module_path: Path, parent: pytest.Collector
) -> pytest.Module | None:
    """Do not import tests whose imports would fail."""
    if not MISSING:
        return None
    made: pytest.Module = SkippedModule.from_parent(parent, path=module_path)
    return made
