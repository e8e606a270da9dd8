#!/usr/bin/env python3
"""Run the tests that CPython, huey, kombu, taskiq and Celery have for their queues, on fmq's.

    python tools/others_tests.py                  # all but Celery's
    python tools/others_tests.py kombu taskiq --directory /tmp/others
    python tools/others_tests.py celery celery-on-redis     # each takes most of an hour

The tests of Celery, kombu and taskiq come from their source distributions, in the versions that are
installed; pip downloads them. Those of huey are installed with it, and those of CPython come from
the package `test` of the Python that runs this. It prints a table, and each test that fails.
`others/expected.toml` has those that are known to fail, with the reasons. 1 if any other fails, or
one of these passes.

Celery's integration tests run with fmq as the broker, and as `celery-on-redis` with Redis, to
compare: it also prints which tests end otherwise there. Both keep their results in a Redis server,
which is started here. Without one, or without the packages of the tests, they are skipped.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from xml.etree import ElementTree

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.others import celery_brokers

ROOT = Path(__file__).resolve().parent.parent
OTHERS = Path(__file__).resolve().parent / "others"
PLUGIN = "tools.others."
SECONDS_MAX = 5400.0
COUNTED = "passed", "failed", "skipped"
OUTCOMES = {"failure": "failed", "error": "failed", "skipped": "skipped"}


@dataclass(frozen=True)
class Run:
    """One run of pytest."""

    places: tuple[str, ...]  # files of ours, or of the source distribution
    options: tuple[str, ...] = ()
    leaves_out: tuple[str, ...] | None = None
    """None: one pytest for all places. Else one for each file of the places but these, so that a
    worker that one file leaves behind harms no other."""

    def places_in(self, where: Path) -> Iterable[tuple[str, ...]]:
        """Yield for each pytest of this run what it runs. `where` has the tests."""
        if self.leaves_out is None:
            yield self.places
            return
        for place in self.places:
            for file in sorted((where / place).glob("test_*.py")):
                if file.name not in self.leaves_out:
                    yield (str(file.relative_to(where)),)


def _nothing() -> AbstractContextManager[dict[str, str]]:
    return nullcontext({})


@dataclass(frozen=True)
class Suite:
    """The tests of one project."""

    runs: tuple[Run, ...]
    distribution: str = ""  # the source distribution with the tests; "" for none
    environment: Callable[[], AbstractContextManager[dict[str, str]]] = _nothing
    """Starts what the tests need beside them, and tells them where it is."""
    lacks: Callable[[], str] = str  # returns what this machine lacks for the tests; "" if nothing
    compared_with: str = ""  # the suite that runs the same tests on something that is not ours
    is_long: bool = False  # it runs only if it is named


# Both use the same options, so that only their brokers differ. The timeout is for one test.
CELERY = ("-c", "pyproject.toml", "-p", "celery.contrib.pytest", "--timeout", "300")
# The first stores results with Azure. The second uses the broker in memory, and 20 workers in turn.
NO_BROKER = ("test_backend.py", "test_backend_leak_in_fixture_teardown.py")

SUITES = {
    "python": Suite((Run((f"{OTHERS}/python_queue.py",)),)),
    "huey": Suite((Run((f"{OTHERS}/huey_storage.py",)),)),
    "kombu": Suite(
        (
            Run((f"{OTHERS}/kombu_integration.py",), ("-c", os.devnull)),
            Run(
                ("t/unit/transport/virtual",),
                ("-c", "setup.cfg", "-p", f"{PLUGIN}kombu_virtual"),
            ),
        ),
        "kombu",
    ),
    "taskiq": Suite(
        (
            Run(
                ("tests/receiver/test_receiver.py", "tests/api"),
                ("-c", "pyproject.toml", "-p", f"{PLUGIN}taskiq_receiver"),
            ),
        ),
        "taskiq",
    ),
    "celery": Suite(
        (Run(("t/integration",), (*CELERY, "-p", "fmq.compat.kombu"), NO_BROKER),),
        "celery",
        celery_brokers.on_fmq,
        celery_brokers.missing,
        compared_with="celery-on-redis",
        is_long=True,
    ),
    "celery-on-redis": Suite(
        (Run(("t/integration",), CELERY, NO_BROKER),),
        "celery",
        celery_brokers.on_redis,
        celery_brokers.missing,
        is_long=True,
    ),
}
FOREIGN = {suite.compared_with for suite in SUITES.values()}


@dataclass
class Result:
    """The results of the tests of one suite, by name: passed, failed or skipped."""

    outcomes: dict[str, str] = field(default_factory=dict)
    messages: dict[str, str] = field(default_factory=dict)
    expected: dict[str, str] = field(default_factory=dict)
    lacks: str = ""  # why no test ran
    is_foreign: bool = False  # the tests ran on something that is not ours

    def count(self, outcome: str) -> int:
        return sum(each == outcome for each in self.outcomes.values())

    def _reason(self, name: str) -> str | None:
        found = [reason for end, reason in self.expected.items() if name.endswith(end)]
        return found[0] if found else None

    @property
    def failed(self) -> list[str]:
        return [name for name, outcome in self.outcomes.items() if outcome == "failed"]

    @property
    def surprises(self) -> list[str]:
        """Return what is wrong: a new failure, a test that passes though it is listed, no test."""
        if self.lacks or self.is_foreign:
            return []
        found = [f"{name}: {self.messages[name]}" for name in self.failed if not self._reason(name)]
        found += [
            f"{name}: it passes, and expected.toml has it"
            for name, outcome in self.outcomes.items()
            if outcome == "passed" and self._reason(name)
        ]
        return found if self.outcomes else ["no test ran"]

    @property
    def differences(self) -> list[str]:
        """Return the failures that are known, with their reasons."""
        return [f"{name}: {reason}" for name in self.failed if (reason := self._reason(name))]

    def compared(self, other: Result) -> list[str]:
        """Return which tests ended otherwise than those of `other`, which are the same tests."""
        found = []
        for name in sorted(self.outcomes.keys() | other.outcomes.keys()):
            mine, theirs = (each.outcomes.get(name, "missing") for each in (self, other))
            if mine != theirs:
                found.append(f"{name}: {mine}, there {theirs}")
        return found


def source_of(distribution: str, directory: Path) -> Path:
    """Return the folder of a source distribution, in the version that is installed."""
    wanted = f"{distribution}=={version(distribution)}"
    folder = directory / wanted
    if not folder.exists():
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=directory) as made:
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
            command += ["--no-binary", ":all:", "--dest", made, wanted]
            subprocess.run(command, check=True)
            [archive] = Path(made).iterdir()
            with tarfile.open(archive) as opened:
                opened.extractall(Path(made) / "out", filter="data")
            [found] = (Path(made) / "out").iterdir()
            found.rename(folder)
    return folder


def run(name: str, directory: Path) -> Result:
    """Run one suite. `directory` keeps what was downloaded."""
    suite = SUITES[name]
    expected = tomllib.loads((OTHERS / "expected.toml").read_text())
    result = Result(expected=expected.get(name, {}), lacks=suite.lacks())
    result.is_foreign = name in FOREIGN
    if result.lacks:
        return result
    where = source_of(suite.distribution, directory) if suite.distribution else ROOT
    for each in suite.runs:
        for places in each.places_in(where):
            with suite.environment() as environment:
                _run((*each.options, *places), where, environment, result)
    return result


def _run(
    arguments: Iterable[str], where: Path, environment: dict[str, str], result: Result
) -> None:
    """Run pytest once."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        environ = {**os.environ, **environment, "PYTHONPATH": f"{where}{os.pathsep}{ROOT}"}
        # Some tests start a program of the project, which is installed beside this Python.
        beside = str(Path(sys.executable).parent)
        environ["PATH"] = f"{beside}{os.pathsep}{os.environ.get('PATH', '')}"
        command = [sys.executable, "-m", "pytest", "-q", "--rootdir", str(where)]
        command += ["-p", "no:cacheprovider", "-p", "no:warnings", "-p", "no:xdist"]
        command += [f"--junit-xml={report}", *arguments]
        ended = subprocess.run(
            command,
            check=False,  # what failed is in the report
            cwd=where,
            env=environ,
            timeout=SECONDS_MAX,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if not report.exists():
            raise SystemExit(ended.stdout)
        for case in ElementTree.parse(report).iter("testcase"):
            _note(case, result)


def _note(case: ElementTree.Element, result: Result) -> None:
    module = (case.get("classname") or "").replace(".", "::")
    name = "::".join(each for each in (module, case.get("name")) if each)
    outcome, message = "passed", ""
    for child in case:
        if child.tag in OUTCOMES:
            outcome = OUTCOMES[child.tag]
            message = (child.get("message") or "").partition("\n")[0]
    if result.outcomes.get(name) != "failed":  # a file has two tests of one name
        result.outcomes[name], result.messages[name] = outcome, message


def table(results: dict[str, Result]) -> Iterable[str]:
    """Yield the lines of the table, and below it the differences and the surprises."""
    yield f"{'tests of':<16}{'passed':>8}{'failed':>8}{'skipped':>9}  of the failed expected"
    for name, result in results.items():
        passed, failed, skipped = (result.count(each) for each in COUNTED)
        yield f"{name:<16}{passed:>8}{failed:>8}{skipped:>9}  {len(result.differences)}"
    for name, result in results.items():
        if result.lacks:
            yield f"\nSKIPPED, of {name}: {result.lacks}"
        other = results.get(SUITES[name].compared_with) if name in SUITES else None
        if other is not None and not (result.lacks or other.lacks):
            differ = result.compared(other)
            yield f"\n{name} and {SUITES[name].compared_with}: {len(differ)} tests end otherwise"
            yield from (f"\n{name}: {each}" for each in differ)
        for each in result.differences:
            yield f"\nexpected of {name}: {each}"
        for each in result.surprises:
            yield f"\nWRONG, of {name}: {each}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(SUITES)}")
    parser.add_argument("--directory", type=Path, default=ROOT / "build" / "others", metavar="DIR")
    chosen = parser.parse_args(arguments)
    unknown = [name for name in chosen.names if name not in SUITES]
    if unknown:
        parser.error(f"{unknown[0]!r} is none of {', '.join(SUITES)}")
    results = {}
    short = [name for name, suite in SUITES.items() if not suite.is_long]
    for name in chosen.names or short:
        print(f"running the tests of {name}", file=sys.stderr, flush=True)
        results[name] = run(name, chosen.directory.absolute())
        counted = ", ".join(f"{results[name].count(each)} {each}" for each in COUNTED)
        print(f"{name}: {counted}", file=sys.stderr, flush=True)
    print("\n".join(table(results)))
    return 1 if any(result.surprises for result in results.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
