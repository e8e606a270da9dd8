"""The pytest fixture `crash`: `fmq.testing.crash`, with options of the command line.

A conftest.py at the root of the tests asks for it, so that pytest loads fmq only where it is
wanted:

    pytest_plugins = ["fmq.testing.pytest_plugin"]
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fmq.testing
from fmq.testing import CrashFailure, CrashReport

OPTIONS = {"only": "--crash-only", "seed": "--crash-seed", "states_max": "--crash-states"}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the command-line options. Without them a test's own arguments count."""
    group = parser.getgroup("fmq", "fmq: crashing programs")
    group.addoption("--crash-only", metavar="NAME", help="the one crash that a failure has named")
    group.addoption("--crash-seed", type=int, metavar="N", help="choose other power cuts")
    group.addoption("--crash-states", type=int, metavar="N", help="power cuts at each point")


@pytest.fixture
def crash(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., CrashReport]:
    """Return `fmq.testing.crash`. It keeps the disk of a failing crash in `tmp_path`."""
    said = {name: request.config.getoption(flag, None) for name, flag in OPTIONS.items()}
    chosen = {name: value for name, value in said.items() if value is not None}

    def run(*arguments: Any, **named: Any) -> CrashReport:
        __tracebackhide__ = True  # hide this frame: the test and its check say more
        try:
            return fmq.testing.crash(*arguments, **{"keep": tmp_path, **named, **chosen})
        except CrashFailure as failure:
            test = request.node.nodeid
            failure.add_note(f"  or      pytest '{test}' --crash-only '{failure.only}'")
            raise failure.with_traceback(None) from failure.__cause__

    return run
