"""How tests are dealt out among processes: each file to one of them, also if one dies."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parent.parent
FILES = "test_a.py", "test_b.py", "test_c.py"
TESTS = "test_first", "test_second", "test_third", "test_fourth"
TEST = """
def {name}():
    with open("ran", "a") as ran:
        ran.write(f"{{__file__}}::{name} {{os.getpid()}}\\n")
"""
DIES = "    os.kill(os.getpid(), signal.SIGKILL)\n"


def run(folder: Path, *, dies: str = "") -> tuple[str, list[tuple[str, str]]]:
    """Run three files in two processes. Return what pytest says, and which test ran where. The
    process of the test `dies` is killed in it.
    """
    for file in FILES:
        source = "import os, signal\n"
        for name in TESTS:
            source += TEST.format(name=name) + DIES * (dies == f"{file}::{name}")
        (folder / file).write_text(source)
    kept = {name: value for name, value in os.environ.items() if "PYTEST" not in name}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.pace", "-n", "2", "--dist", "loadfile"],
        cwd=folder,
        env={**kept, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == bool(dies), done.stdout + done.stderr
    ran = [line.split() for line in (folder / "ran").read_text().splitlines()]
    return done.stdout, [(Path(test).name, process) for test, process in ran]


def test_each_file_runs_in_one_process(tmp_path: Path) -> None:
    said, ran = run(tmp_path)
    assert "12 passed" in said
    for file in FILES:
        here = [(test, process) for test, process in ran if test.startswith(file)]
        assert [test for test, _ in here] == [f"{file}::{name}" for name in TESTS]
        assert len({process for _, process in here}) == 1
    assert len({process for _, process in ran}) == 2


def test_what_a_process_that_died_had_left_runs_in_another(tmp_path: Path) -> None:
    """The test in which it died has failed, and runs no more."""
    said, ran = run(tmp_path, dies="test_b.py::test_second")
    assert "1 failed, 11 passed" in said
    assert "crashed while running 'test_b.py::test_second'" in said
    assert Counter(test for test, _ in ran) == {
        f"{file}::{name}": 1 for file in FILES for name in TESTS
    }
    where = dict(ran)
    assert where["test_b.py::test_first"] == where["test_b.py::test_second"]
    assert where["test_b.py::test_third"] == where["test_b.py::test_fourth"]
    assert where["test_b.py::test_second"] != where["test_b.py::test_third"]
