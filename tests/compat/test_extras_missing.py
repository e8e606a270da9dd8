"""Without a package, the module for it says what to install, and all else works."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
SCRIPT = """
import sys
sys.modules[{package!r}] = None  # as if it were not installed
import fmq.compat
assert fmq.compat.Queue
import {module}
"""
MODULES = {
    **{name: f"fmq.compat.{name}" for name in ("huey", "kombu", "taskiq")},
    **{name: f"fmq.bind.{name}" for name in ("django", "sqlalchemy")},
}


@pytest.mark.parametrize("package", MODULES)
def test_the_error_for_a_missing_extra_names_it(package: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(package=package, module=MODULES[package])],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert f"pip install 'fmq-engine[{package}]'" in done.stderr.splitlines()[-1]
