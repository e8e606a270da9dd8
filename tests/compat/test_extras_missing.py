"""Without a package, the module for it says what to install, and all else works."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
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
HOME = """
import sys
sys.modules[{package!r}] = None  # as if it were not installed
import fmq
from fmq.home.home_addresses import objects_at
try:
    objects_at({address!r})
except fmq.ExtraMissing as error:
    print(error.extra)
"""
HOMES = {
    "boto3": "s3://bucket/shop",
    "psycopg": "postgresql://host/database/shop",
    "nats": "nats://host/shop",
    "obstore": "gs://bucket/shop",
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


@pytest.mark.parametrize("package", HOMES)
def test_the_extra_for_a_home_brings_what_the_home_imports(package: str) -> None:
    """Also if it is a second name of another extra."""
    program = HOME.format(package=package, address=HOMES[package])
    run = [sys.executable, "-c", program]
    extra = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    [brought] = project["optional-dependencies"][extra]
    if name := re.fullmatch(rf"{project['name']}\[(.*)\]", brought):
        assert extra == f"home-{name[1]}"
        [brought] = project["optional-dependencies"][name[1]]
    assert re.split(r"[\[>]", brought)[0] in packages_distributions()[package]
