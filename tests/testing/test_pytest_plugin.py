"""The fixtures for pytest, in a pytest of their own, and the example of docs/testing.md."""

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


def test_broken(fmq_crash):
    fmq_crash(workload, check)


def test_sound(fmq_crash):
    report = fmq_crash(workload, lambda engine, world: None, states_max=1)
    print("tried", report.points, report.states)
"""

OWN_OPTIONS = """
import fmq
import pytest


@pytest.fixture
def fmq_options():
    return fmq.Options(queues=3)
"""


def run(directory: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--basetemp=tmp", *arguments],
        cwd=directory,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=120,
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


def test_the_example_of_the_document_passes(tmp_path: Path) -> None:
    """Each block there that begins with the name of a file is that file."""
    page = (ROOT / "docs" / "testing.md").read_text()
    files = re.findall(r"^```python\n# (\w+\.py)\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert [name for name, _ in files] == ["conftest.py", "shop.py", "test_shop.py"]
    for name, text in files:
        (tmp_path / name).write_text(text)
    said = run(tmp_path, "-W", "error")
    assert "4 passed" in said, said
    wrong = (tmp_path / "test_shop.py").read_text().replace('[b"ada"]', '[b"bob"]')
    (tmp_path / "test_shop.py").write_text(wrong)
    assert "1 failed, 3 passed" in run(tmp_path), "the test does look at what was sent"


def test_a_project_has_options_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(f"{CONFTEST}{OWN_OPTIONS}")
    (tmp_path / "test_own.py").write_text(
        "def test_options(fmq_engine, tmp_path):\n"
        "    assert fmq_engine.options.queues == 3\n"
        "    assert (tmp_path / 'fmq').is_dir()\n"
    )
    assert "1 passed" in run(tmp_path)


def test_importing_fmq_testing_does_not_import_pytest() -> None:
    script = "import sys, fmq.testing; print('pytest' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"
