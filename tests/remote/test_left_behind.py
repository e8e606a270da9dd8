"""What a process that serves leaves behind, and who may use what it serves."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import fmq
from fmq.errors import NotAStore
from fmq.recovery.layout import OF_THE_SERVER
from tests.remote.served import ROOT, serving

# Another user, who connects, would try for an hour, and says which error that gives.
STRANGER = """
import os, sys
import fmq, fmq.remote.dial, subprocess
os.setgroups([]); os.setgid(65534); os.setuid(65534)  # who may not read this Python, perhaps
try:
    fmq.connect(sys.argv[1], start=sys.argv[2] == "start", retry_for=3600.0).send("t", b"1")
except fmq.errors.FmqError as error:
    print(type(error).__name__, error)
"""


def test_unsynced_sends_lost_with_the_server_leave_no_gap(
    tmp_path: Path,
) -> None:
    """What comes after it gets the next offset that is free, so offsets stay dense."""
    path = tmp_path / "shop"
    options = fmq.Options(sync="interval", sync_interval_seconds=3600.0)
    with fmq.connect(path, options) as client:
        kept = client.send("t", b"durable", sync=True)
        for number in range(5):
            client.send("t", b"%d" % number, sync=False)
        pid = int((path / "LOCK").read_text().split()[1])
        os.kill(pid, signal.SIGKILL)
        after = client.send("t", b"after", sync=True)
        found = [message.body for message in client.read("t")]
        assert found[0] == b"durable"
        assert found[-1] == b"after"
        assert found[1:-1] == [b"%d" % number for number in range(len(found) - 2)]
        assert (kept.offset, after.offset) == (0, len(found) - 1)
        (queue,) = client.queues("t")
        assert (queue.first, queue.next) == (0, len(found))
        os.kill(int((path / "LOCK").read_text().split()[1]), signal.SIGTERM)


@pytest.mark.parametrize("name", sorted(OF_THE_SERVER))
def test_files_of_the_server_are_known_in_a_directory_without_a_journal(
    name: str, tmp_path: Path
) -> None:
    """A client makes some of them before there is a journal. They do not count as foreign files."""
    path = tmp_path / "shop"
    path.mkdir()
    (path / name).touch()
    with pytest.raises(NotAStore, match="no journal was ever begun"):
        fmq.open(path, read_only=True)
    command = [sys.executable, "-m", "fmq", "info", str(path)]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert "no journal was ever begun" in said.stderr
    with fmq.open(path, background=False) as engine:
        engine.send("t", b"1")
    assert fmq.check(path).ok
    (path / "foreign").touch()
    assert fmq.check(path).ok  # beside a journal, files of other programs do not matter


def test_a_server_that_was_killed_leaves_a_directory_that_opens(tmp_path: Path) -> None:
    """The socket of the dead process stays, and the next process replaces it."""
    path = tmp_path / "shop"
    with serving(path) as served, fmq.connect(path, start=False) as client:
        client.send("t", b"1")
        served.process.kill()
        served.process.wait()
    assert (path / "SOCKET").is_socket()
    report = fmq.check(path)
    assert report.ok, report.problems
    with fmq.open(path) as engine, engine.serve(), fmq.connect(path, start=False) as client:
        assert [message.body for message in client.read("t")] == [b"1"]


def test_the_server_of_a_deleted_directory_leaves_the_socket_of_the_next_one(
    tmp_path: Path,
) -> None:
    """The directory was deleted under its server, and made again. The first server ends later."""
    path = tmp_path / "shop"
    with serving(path) as former:
        shutil.rmtree(path)
        with fmq.open(path) as engine, engine.serve():
            former.end()
            with fmq.connect(path, start=False) as client:
                client.send("t", b"1")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("mode", [0o700, 0o755])
@pytest.mark.parametrize("start", ["start", "never"])
def test_another_user_is_refused_at_once(mode: int, start: str, tmp_path: Path) -> None:
    """Whether the directory is closed to that user, or only the socket."""
    for folder in (tmp_path, *tmp_path.parents):
        if os.stat(folder).st_uid == os.geteuid() and folder.is_relative_to("/tmp"):
            os.chmod(folder, os.stat(folder).st_mode | 0o011)
    path = tmp_path / "shop"
    with serving(path):
        os.chmod(path, mode)
        command = [sys.executable, "-c", STRANGER, str(path), start]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        said = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            env=environment,
            cwd="/",
            timeout=300,
        )
    assert said.stdout.startswith("NotAllowed "), said.stdout + said.stderr
