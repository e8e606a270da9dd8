"""Skip these tests where grpc is missing, and let pytest know the fixture `rocketmq`."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from fmq_rocketmq.pytest_plugin import rocketmq as rocketmq

PACKAGE = Path(__file__).parent.parent.parent
ROOT = PACKAGE.parent.parent

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


@pytest.fixture
def installed(tmp_path: Path) -> str:
    """Return a path for Python on which the package is as if it were installed."""
    metadata = tmp_path / "site" / "fmq_rocketmq-0.1.0.dist-info"
    metadata.mkdir(parents=True)
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]
    points = {
        group: rows for group, rows in project["entry-points"].items() if group.startswith("fmq.")
    }
    (metadata / "entry_points.txt").write_text(
        "".join(
            f"[{group}]\n" + "".join(f"{name} = {what}\n" for name, what in rows.items())
            for group, rows in points.items()
        )
    )
    about = "Metadata-Version: 2.1\nName: fmq-rocketmq\nVersion: 0.1.0\n"
    (metadata / "METADATA").write_text(about)
    return os.pathsep.join(map(str, (tmp_path / "site", PACKAGE, ROOT)))
