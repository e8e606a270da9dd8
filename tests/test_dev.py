"""What `tools/dev.py` and `pyproject.toml` promise to those who run the tests or install fmq."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import tomllib
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

ROOT = Path(__file__).parent.parent
spec = spec_from_file_location("dev", ROOT / "tools" / "dev.py")
assert spec is not None
assert spec.loader is not None
dev = module_from_spec(spec)
spec.loader.exec_module(dev)
SECONDS_MAX = 60
# As dev.py runs pytest, with this Python instead of the one in .venv.
RUN = """
import importlib.util, sys
from pathlib import Path
spec = importlib.util.spec_from_file_location("dev", "tools/dev.py")
dev = importlib.util.module_from_spec(spec)
spec.loader.exec_module(dev)
dev.VENV_PYTHON = Path(sys.executable)
sys.exit(dev.run("-c", "import os, signal; print(os.getpid(), flush=True); signal.pause()"))
"""


def test_sigterm_ends_the_command_and_its_processes() -> None:
    """Neither tests nor their servers run on. The exit code is that of a shell."""
    command = subprocess.Popen(
        [sys.executable, "-c", RUN], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert command.stdout is not None
    started = os.pidfd_open(int(command.stdout.readline()))
    command.send_signal(signal.SIGTERM)
    try:
        assert command.wait() == 128 + signal.SIGTERM
        assert select.select([started], [], [], SECONDS_MAX)[0], "the tests run on"
    finally:
        os.close(started)
        command.stdout.close()


def test_the_extra_for_postgresql_includes_libpq() -> None:
    """Plain psycopg can be installed without libpq, but not imported."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        extras = tomllib.load(file)["project"]["optional-dependencies"]
    assert [each for each in extras["postgres"] if each.startswith("psycopg[binary]")]


def test_each_test_file_is_in_exactly_one_ring() -> None:
    """Each place in the table exists, and is named once."""
    files = [name for names in dev.files_of_rings().values() for name in names]
    there = [path for folder in ("tests", "crash_tests") for path in (ROOT / folder).rglob("*.py")]
    tests = [str(path.relative_to(ROOT)) for path in there if path.name.startswith("test_")]
    assert sorted(files) == sorted(tests)
    with dev.RINGS.open("rb") as file:
        places = [place for ring in tomllib.load(file).values() for place in ring["places"]]
    assert len(places) == len(set(places))
    assert [place for place in places if not (ROOT / place).exists()] == []


def test_a_file_named_in_a_ring_is_not_in_its_folders_ring() -> None:
    rings = dev.files_of_rings()
    assert "tests/feedback/test_asking.py" in rings["engine"]
    assert "tests/feedback/test_interrupts.py" in rings["inside"]


def test_two_processes_share_the_tests_unless_files_are_named() -> None:
    several = len(os.sched_getaffinity(0)) >= dev.PROCESSES
    shared = ["-n", "2", "--dist", "worksteal"] if several else []
    for rest in ([], ["-x"], ["tests/tx"], ["-k", "seek"]):
        assert dev.shared_by(rest) == shared, rest
    for rest in (["tests/test_dev.py"], ["-n", "0"], ["-n4"], ["--pdb"], ["tests/a.py::test_b"]):
        assert dev.shared_by(rest) == [], rest


FORBIDDEN = r"time\.sleep|monkeypatch\.setattr|import mock|\b(engine|reader)\._[a-z]"


def test_no_test_sleeps_patches_or_uses_private_parts() -> None:
    """FakeClock moves time, FaultDisk.before waits inside a call, inside() shows the parts."""
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in (ROOT / "tests").rglob("*.py")
        for line in path.read_text().splitlines()
        if re.search(FORBIDDEN, line) and not line.startswith("FORBIDDEN")
    ]
    assert found == []
