"""How long tests take: the longest first, how long is left, and which cost the most.

`tools/dev.py test` runs pytest with this. tests/durations.json has about how many seconds of the
processor each file takes, of children that it has waited for, too. What it does not name counts
as one second. `--processor N` shows the tests that cost the most, and `--note-durations` writes
the file anew.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import warm

DURATIONS = Path(__file__).with_name("durations.json")
SECONDS_BETWEEN = 60
"""Between two lines that say how long is left. A terminal gets them as rarely as a file."""
UNKNOWN = 1.0
TOGETHER = "tests/spark", "tests/relay/test_kafka"
"""The files whose names begin so run in one process, which alone starts Spark, or Kafka."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("pace", "how long tests take")
    group.addoption("--processor", type=int, metavar="N", default=0, help="show the N most costly")
    group.addoption("--note-durations", action="store_true", help=f"write {DURATIONS.name} anew")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Pace(config), "fmq-pace")


def file_of(nodeid: str) -> str:
    """Return the file of a test."""
    return nodeid.partition("::")[0]


def known_durations() -> dict[str, float]:
    """Return seconds of the processor by file, as they were measured once."""
    found: dict[str, float] = json.loads(DURATIONS.read_text()) if DURATIONS.exists() else {}
    return found


def unit_of(nodeid: str) -> str:
    """Return what one process runs as a whole: the file of a test, or several that share a
    server.
    """
    file = file_of(nodeid)
    return next((each for each in TOGETHER if file.startswith(each)), file)


def by_length(files: list[str], durations: dict[str, float]) -> list[str]:
    """Return `files` with the longest first, and what runs in one process as one."""
    together: dict[str, float] = defaultdict(float)
    for each in files:
        together[unit_of(each)] += durations.get(each, UNKNOWN)

    def key(file: str) -> tuple[float, str, float]:
        unit = unit_of(file)
        return -together[unit], unit, -durations.get(file, UNKNOWN)

    return sorted(files, key=key)


class Pace:
    """Sorts the tests of one run, and says how far it is."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._durations = known_durations()
        self._is_worker = hasattr(config, "workerinput")
        self._left: dict[str, float] = {}  # what tests that have not ended may take
        self._total = 0.0
        self._began = self._said = time.monotonic()
        self._used: dict[str, float] = {}  # seconds of the processor by test
        self._before = 0.0  # the current test
        self._file = ""

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        files = [*dict.fromkeys(file_of(item.nodeid) for item in items)]
        place = {file: at for at, file in enumerate(by_length(files, self._durations))}
        items.sort(key=lambda item: place[file_of(item.nodeid)])
        self._expect([item.nodeid for item in items])

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> Any:
        from tests.by_file import ByFile  # imported here: it needs xdist

        return ByFile(config, log, unit_of) if config.getoption("dist") == "loadfile" else None

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: list[str]) -> None:
        self._expect(ids)

    def _expect(self, ids: list[str]) -> None:
        counts: dict[str, int] = defaultdict(int)
        for each in ids:
            counts[file_of(each)] += 1
        self._left = {
            each: self._durations.get(file_of(each), UNKNOWN) / counts[file_of(each)]
            for each in ids
        }
        self._total = sum(self._left.values())
        self._began = self._said = time.monotonic()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> None:
        if self._file != file_of(item.nodeid):
            self._file = file_of(item.nodeid)
            gc.collect()
            gc.freeze()  # what a file has left behind is not walked over in the next ones
        self._before = processor_seconds()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Iterator[None]:
        report: Any = yield
        report.processor = processor_seconds() - self._before
        return report  # type: ignore[no-any-return]

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when != "teardown" or self._is_worker:
            return
        self._used[report.nodeid] = report.processor
        self._left.pop(report.nodeid, None)
        now = time.monotonic()
        if self._left and now - self._said >= SECONDS_BETWEEN:
            self._said = now
            self._say(left_in_words(now - self._began, self._total, sum(self._left.values())))

    @pytest.hookimpl(wrapper=True)
    def pytest_collection(self) -> Iterator[None]:
        """Keep the collector of garbage from walking over all modules and tests again and again.

        They stay to the end, and are far more than what a test makes. It took half of the time of
        the collection, and a fifth of that of the tests. What tests make is walked over more
        rarely, too: a tenth of their time.
        """
        gc.disable()
        try:
            return (yield)
        finally:
            gc.freeze()
            gc.set_threshold(5000, 20, 100)
            gc.enable()

    def _say(self, text: str) -> None:
        print(f"\n[{text}]", file=sys.__stderr__, flush=True)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        by_file: dict[str, float] = defaultdict(float)
        for nodeid, seconds in self._used.items():
            by_file[file_of(nodeid)] += seconds
        if shown := self._config.getoption("--processor"):
            total = sum(self._used.values())
            terminalreporter.section(f"{total:.0f} s of the processor")
            for names in (by_file, self._used):
                costly = sorted(names.items(), key=lambda each: -each[1])[:shown]
                for name, seconds in costly:
                    terminalreporter.write_line(f"{seconds:8.2f} s  {name}")
        if self._config.getoption("--note-durations"):
            unfinished = {file_of(nodeid) for nodeid in self._left}  # of an interrupted run
            noted = known_durations() | {
                name: round(s, 1) for name, s in by_file.items() if name not in unfinished
            }
            there = {name: s for name, s in sorted(noted.items()) if Path(name).exists()}
            DURATIONS.write_text(json.dumps(there, indent=0) + "\n")


def processor_seconds() -> float:
    """Return what this process and the children that it has waited for have used."""
    return sum(os.times()[:4]) + warm.spent[0]


def left_in_words(elapsed: float, total: float, left: float) -> str:
    """Return how far a run is that has taken `elapsed` seconds for all but `left` of `total`."""
    done = total - left
    share = f"{done / total:.0%} done"
    if done <= 0:
        return share
    seconds = round(elapsed * left / done)
    return f"{share}, about {seconds // 60}:{seconds % 60:02} left"
