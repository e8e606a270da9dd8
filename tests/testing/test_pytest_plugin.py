"""The fixture `crash`, in a pytest of its own: what it adds to `fmq.testing.crash`."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
CONFTEST = 'pytest_plugins = ["fmq.testing.pytest_plugin"]\n'
TESTS = """
def workload(engine, world):
    (world.path / "note").write_text("1")
    engine.send("notes", b"1")


def check(engine, world):
    notes = (world.path / "note").exists()
    assert notes == bool(engine.read("notes"))


def test_broken(crash):
    crash(workload, check)


def test_sound(crash):
    report = crash(workload, lambda engine, world: None, states_max=1)
    print("tried", report.points, report.states)
"""


def run(directory: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--basetemp=tmp", *arguments],
        cwd=directory,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.stdout + done.stderr


def test_a_failing_test_prints_how_to_repeat_its_crash(tmp_path: Path) -> None:
    """It also says where the directories are that the crash left. The printed command works.

    Frames of fmq between the test and its check are not shown.
    """
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_notes.py").write_text(TESTS)
    said = run(tmp_path)
    assert "1 failed, 1 passed" in said
    assert "assert notes == bool(" in said
    assert "fmq/testing/" not in said
    kept = re.search(r"kept +(.*)", said)
    assert kept
    assert (Path(kept[1]) / "files" / "note").exists()
    again = re.search(r"or +pytest '(.*)' --crash-only '(.*)'", said)
    assert again
    said_again = run(tmp_path, again[1], "--crash-only", again[2])
    assert "tried   1 crash points, 1 distinct states" in said_again
    assert f"--crash-only '{again[2]}'" in said_again


def test_the_command_line_chooses_seed_and_number_of_power_cuts(tmp_path: Path) -> None:
    """It overrides the arguments of the test, so that a nightly run can try more."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_notes.py").write_text(TESTS)
    tried = []
    for options in ((), ("--crash-states", "30", "--crash-seed", "7")):
        said = run(tmp_path, "-rP", "-k", "sound", *options)
        found = re.search(r"tried (\d+) (\d+)", said)
        assert found, said
        tried.append((int(found[1]), int(found[2])))
    assert tried[0][0] == tried[1][0]
    assert tried[0][1] < tried[1][1]


def test_importing_fmq_testing_does_not_import_pytest() -> None:
    script = "import sys, fmq.testing; print('pytest' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"
