"""Fixtures for pytest: an engine with its clock, what it was sent, and `fmq.testing.crash`.

A conftest.py at the root of the tests asks for them, so that pytest loads fmq only where it is
wanted:

    pytest_plugins = ["fmq.testing.pytest_plugin"]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import fmq
import fmq.testing
from fmq.testing import CrashFailure, CrashReport, FakeClock, SentMessages

OPTIONS = {"only": "--crash-only", "seed": "--crash-seed", "states_max": "--crash-states"}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the command-line options. Without them a test's own arguments count."""
    group = parser.getgroup("fmq", "fmq: crashing programs")
    group.addoption("--crash-only", metavar="NAME", help="the one crash that a failure has named")
    group.addoption("--crash-seed", type=int, metavar="N", help="choose other power cuts")
    group.addoption("--crash-states", type=int, metavar="N", help="power cuts at each point")


@pytest.fixture
def fmq_options() -> fmq.Options:
    """Return the options of `fmq_engine`. A project that needs others has a fixture of this name.

    Without a sync a test does not wait for the disk. It sees the same: only a crash would not.
    """
    return fmq.Options(sync="never")


@pytest.fixture
def fmq_clock() -> FakeClock:
    """Return the clock of `fmq_engine`, which stands still."""
    return FakeClock()


@pytest.fixture
def fmq_engine(
    tmp_path: Path, fmq_options: fmq.Options, fmq_clock: FakeClock
) -> Iterator[fmq.Engine]:
    """Return an engine of a directory of the test, without threads. It is closed after the test."""
    path = tmp_path / "fmq"
    with fmq.open(path, fmq_options, clock=fmq_clock, background=False) as engine:
        yield engine


@pytest.fixture
def fmq_sent(fmq_engine: fmq.Engine) -> SentMessages:
    """Return what `fmq_engine` was sent, as it is when the test looks. What is undecided is not
    there yet.
    """
    return SentMessages(fmq_engine, fmq_engine)


@pytest.fixture
def fmq_pass_time(fmq_engine: fmq.Engine, fmq_clock: FakeClock) -> Callable[[float], None]:
    """Return a function that lets so many seconds pass, and then all happen that is due: delayed
    messages, schedules, leases that end, retention.
    """

    def pass_time(seconds: float) -> None:
        fmq_clock.advance(seconds)
        fmq_engine.sync()  # an engine without threads does what is due at the end of such a call

    return pass_time


@pytest.fixture
def fmq_crash(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., CrashReport]:
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
