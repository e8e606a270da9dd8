"""Plants bugs in a copy of fmq, one at a time. The harness, or a test, must catch each.

The copy lies in a temporary directory in front of the path; the tree itself is never touched. All
files but those with a bug are links, so that what Python has compiled is used again.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from functools import cache
from importlib.util import cache_from_source
from pathlib import Path

from crash_tests.mutant import Mutant
from crash_tests.planted import MUTANTS

ROOT = Path(__file__).parent.parent
SECONDS_MAX = 900  # a limit for a machine that does other things, too


def caught(mutant: Mutant) -> bool:
    """Return whether the harness, or the tests that the bug names, fail with this bug."""
    with planted(mutant) as folder:
        if mutant.tests:
            return _fails_tests(mutant.tests.split(), folder)
        return _fails(
            ["--no-shrink", "--seed", "0", *mutant.arguments.split()], folder, " failures"
        )


def shows(mutant: Mutant, failure: Path) -> bool:
    """Return whether the failure in a file appears again with this bug."""
    with planted(mutant) as folder:
        return _fails(["replay", str(failure)], folder, "Broken:")


@contextlib.contextmanager
def planted(mutant: Mutant) -> Iterator[str]:
    """Yield a folder with a copy of fmq that has the bug. Raises if the text to replace is not
    there once.

    A process has one such folder, and plants one bug after the other in it.
    """
    folder = _copy()
    sources, changed = dict(_sources()), set[str]()
    for old, new in ((mutant.old, mutant.new), *mutant.more):
        having = [file for file, source in sources.items() if old in source]
        if len(having) != 1:
            raise LookupError(f"{mutant.name}: {len(having)} files say {old!r}")
        sources[having[0]] = sources[having[0]].replace(old, new)
        changed.add(having[0])
    try:
        for file in changed:
            for each in (file, cache_from_source(file)):
                Path(folder, each).unlink(missing_ok=True)  # a link to the tree
            Path(folder, file).write_text(sources[file])
        yield folder
    finally:
        for file in changed:
            for each in (file, cache_from_source(file)):
                Path(folder, each).unlink(missing_ok=True)
                if Path(ROOT, each).exists():
                    Path(folder, each).symlink_to(Path(ROOT, each))


@cache
def _sources() -> dict[str, str]:
    """Return the source of each module of fmq that a bug may be planted in."""
    files = [each for each in (ROOT / "fmq").rglob("*.py") if "spark" not in each.parts]
    return {str(each.relative_to(ROOT)): each.read_text() for each in files}


@cache
def _copy() -> str:
    """Return the folder of this process in which bugs are planted. It goes with the process."""
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder)
    _link("fmq", folder, "spark")
    _link("crash_tests", folder)
    return folder


def _link(name: str, folder: str, *ignored: str) -> None:
    """Put links to all files of a package into `folder`, to what is compiled already, too."""
    without = shutil.ignore_patterns(*ignored)
    shutil.copytree(ROOT / name, Path(folder, name), copy_function=os.symlink, ignore=without)


def _fails_tests(arguments: list[str], folder: str) -> bool:
    if not Path(folder, "tests").exists():
        _link("tests", folder)
        _link("tools", folder)
        shutil.copy(ROOT / "pyproject.toml", folder)
    done = _run(["pytest", "-x", *arguments], folder)
    if done.returncode not in (0, 1):  # 1 is a failed test, all others say that none ran
        raise RuntimeError(done.stdout + done.stderr)
    return done.returncode == 1


def _run(module: list[str], folder: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *module],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": folder, "PYTHONDONTWRITEBYTECODE": "1"},
        timeout=SECONDS_MAX,
        capture_output=True,
        text=True,
        check=False,
    )


def _fails(arguments: list[str], folder: str, says: str) -> bool:
    done = _run(["crash_tests", *arguments], folder)
    if done.returncode not in (0, 1) or (done.returncode == 1 and says not in done.stdout):
        raise RuntimeError(done.stdout + done.stderr)
    return done.returncode == 1


def main(given: list[str]) -> int:
    """Plant all bugs, or those that were chosen by number or name. Print the score."""
    options = arguments(given)
    numbers = range(len(MUTANTS))[options.first : options.end]
    chosen = [n for n in numbers if _is_named(MUTANTS[n], options.names)]
    if not chosen:
        print(f"error: no planted bug is called {' or '.join(options.names)}", file=sys.stderr)
        return 2
    verdicts = Counter[str]()
    for number in chosen:
        began = time.monotonic()
        verdict = _verdict(MUTANTS[number])
        verdicts[verdict] += 1
        seconds = time.monotonic() - began
        print(f"{verdict:8}{number:4} {seconds:5.0f} s  {MUTANTS[number].name}", flush=True)
    print(f"{verdicts['caught']} of {len(chosen)} planted bugs caught")
    return 0 if verdicts["caught"] == len(chosen) else 1


def arguments(given: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m crash_tests mutants")
    add = parser.add_argument
    add("--from", type=int, default=0, dest="first", help="the number of the first one, from 0")
    add("--to", type=int, dest="end", help="the number behind the last one")
    add("names", nargs="*", metavar="NAME", help="only those whose names contain one of these")
    return parser.parse_args(given)


def _is_named(mutant: Mutant, names: list[str]) -> bool:
    return not names or any(name in mutant.name for name in names)


def _verdict(mutant: Mutant) -> str:
    """Return "caught" or "MISSED". A bug that cannot be tried is BROKEN, and does not end the run
    of all others.
    """
    try:
        return "caught" if caught(mutant) else "MISSED"
    except (LookupError, RuntimeError, subprocess.TimeoutExpired) as error:
        print(str(error)[-2000:], file=sys.stderr)
        return "BROKEN"
