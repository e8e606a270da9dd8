"""What a program finds on macOS and Windows.

These tests pretend: a process takes away what Python lacks on that system, and its name of ours.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import fmq

ROOT = Path(fmq.__file__).parent.parent
MACOS = """
import os, sys, sysconfig
sysconfig.get_config_vars()  # read once, from a file that has the system in its name
for name in ("posix_fallocate", "RWF_DSYNC", "fdatasync"):
    delattr(os, name)
sys.platform = "darwin"
import fmq
"""
WINDOWS = """
import os, sys
for name in ("fcntl", "grp", "pwd", "resource", "termios"):
    sys.modules[name] = None
constants = ["O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK", "RWF_DSYNC"]
calls = ["fork", "geteuid", "getuid", "posix_fallocate", "pread", "pwrite", "pwritev", "uname"]
for name in [*constants, *calls, "register_at_fork"]:
    delattr(os, name)
sys.platform = "win32"
import fmq
"""
CALL = """
try:
    {call}
except fmq.errors.UnsupportedSystem as error:
    print(error.system, error)
"""


def run(script: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_on_macos_opening_for_writing_is_refused(tmp_path: Path) -> None:
    """Nothing is made. Each call says the same, not only the first."""
    for call in ("fmq.open('shop')", "fmq.open('shop'); fmq.open('shop')"):
        said = run(MACOS + CALL.format(call=call), tmp_path)
        assert said.startswith("darwin fmq writes on Linux only, and this is darwin. Nothing was")
        assert "read_only=True" in said
    assert not (tmp_path / "shop").exists()


def test_on_macos_a_journal_can_be_read_and_verified(tmp_path: Path) -> None:
    with fmq.open(tmp_path / "shop") as engine:
        engine.send_many("orders", [b"one", b"two"])
    read = """
assert fmq.check("shop").ok
with fmq.open("shop", read_only=True) as engine:
    print([message.body for message in engine.read("orders", queue=0, offset=0)])
"""
    assert run(MACOS + read, tmp_path) == "[b'one', b'two']"


def test_on_macos_an_engine_runs_on_a_disk_in_memory(tmp_path: Path) -> None:
    send = """
from fmq.testing import CrashDisk
with fmq.open("shop", disk=CrashDisk()) as engine:
    print(engine.send("orders", b"one").offset)
"""
    assert run(MACOS + send, tmp_path) == "0"


def test_on_windows_fmq_can_be_imported_and_opens_nothing(tmp_path: Path) -> None:
    """Each call says the same, not only the first."""
    for call in ("fmq.open('shop')", "fmq.open('shop', read_only=True)", "fmq.check('shop')"):
        said = run(WINDOWS + CALL.format(call=call) * 2, tmp_path)
        sentence = "win32 fmq writes on Linux only, and this is win32. Nothing was changed. Here "
        sentence += "only `import fmq` works; run the program on Linux."
        assert said.splitlines() == [sentence] * 2
    assert not list(tmp_path.iterdir())
