"""The servers that tests start end with the run, and root can start them from any place."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.peers import programs

ROOT = Path(__file__).parent.parent.parent
SECONDS_MAX = 60
# A run that starts a server, prints its process and its folder, and then hangs.
RUN = """
import signal, sys
from pathlib import Path
from benchmarks.peers.postgres import Postgres
server = Postgres(Path(sys.argv[1]))
with server.connect() as connection:
    print(connection.info.host)
    [place] = connection.execute("SHOW data_directory").fetchone()
    print(Path(place, "postmaster.pid").read_text().split()[0], flush=True)
    signal.pause()
"""


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGKILL], ids=lambda one: one.name)
def test_a_run_that_a_signal_ends_leaves_no_postgresql_behind(ending: signal.Signals) -> None:
    """Both the server's processes and the folder of its socket are gone."""
    folder = programs.Folder("fmq-postgres-")
    folder.path.chmod(0o755)
    run = subprocess.Popen(
        [sys.executable, "-c", RUN, folder.path], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert run.stdout is not None
    place, server = Path(run.stdout.readline().strip()), int(run.stdout.readline())
    ended = os.pidfd_open(server)
    run.send_signal(ending)
    run.communicate()
    try:
        assert select.select([ended], [], [], SECONDS_MAX)[0], "the server runs on"
        wait_until_gone(place)
    finally:
        os.close(ended)
        folder.remove()


def wait_until_gone(path: Path) -> None:
    until = time.monotonic() + SECONDS_MAX
    while path.exists():
        assert time.monotonic() < until, f"{path} is left"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs servers as another user")
def test_a_packaged_program_is_copied_for_a_user_without_access_to_it(tmp_path: Path) -> None:
    """A checkout below /root is such a case. The user `nobody` makes a cluster with the copy."""
    package = programs.package_folder()
    assert package is not None
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    original = closed / programs.PACKAGE_PROGRAMS
    for part in (programs.PACKAGE, f"{programs.PACKAGE}.libs"):
        (closed / part).symlink_to(package / part)
    assert not programs.can_run("nobody", str(original / "postgres"))
    folder = programs.Folder("fmq-postgres-", "nobody")
    try:
        copy = programs.copy_of_package(closed, folder.path, "nobody")
        done = subprocess.run(
            [copy / "initdb", "-D", folder.path / "cluster", "-N", "-A", "trust"],
            user="nobody", extra_groups=[], cwd="/", capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    finally:
        folder.remove()
