"""The table of differences among faces names tests that there are."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from tests.faces.differences import DIFFERENCES

FACES = Path(__file__).parent / "faces"


@pytest.mark.parametrize("difference", DIFFERENCES, ids=lambda each: each.reason[:40])
def test_each_difference_names_existing_tests(difference: object) -> None:
    assert isinstance(difference, tuple)
    for file, names in difference[2].items():
        module = import_module(f"tests.faces.{file}")
        assert [name for name in names if name != "*" and not hasattr(module, name)] == []


def test_each_test_file_on_all_faces_also_runs_on_an_engine() -> None:
    """The modules there only import the tests of another file."""
    for file in FACES.glob("test_*.py"):
        assert "import *" in file.read_text(), file
