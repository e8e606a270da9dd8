"""A server that lives as long as the store that a peer opened: started beside it, on a socket
of its own, and stopped with it.

Its files lie in the store's directory and its socket in the temporary one, as the path of a
socket may have no more than a hundred bytes. It runs in the foreground in the process group of
whoever measures, so that killing the group, as the runner does, leaves nothing behind.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

READY_SECONDS_MAX = 120.0
POLL_SECONDS = 0.005


class Server:
    """A running server program."""

    def __init__(self, user: str | None = None) -> None:
        self.user = user if user and os.geteuid() == 0 else None
        self.sockets = tempfile.mkdtemp(prefix="server-")
        self._process: subprocess.Popen[bytes] | None = None
        if self.user:
            os.chown(self.sockets, *self._ids())

    def _ids(self) -> tuple[int, int]:
        assert self.user is not None
        entry = pwd.getpwnam(self.user)
        return entry.pw_uid, entry.pw_gid

    def hand_over(self, directory: Path) -> None:
        """Make `directory` the server user's own."""
        directory.mkdir(exist_ok=True)
        if self.user:
            os.chown(directory, *self._ids())

    def run(self, *command: str) -> None:
        """Run a program to its end as the server's user, and raise if it fails."""
        made = subprocess.run(
            command, check=False, user=self.user, capture_output=True, text=True, cwd="/"
        )
        if made.returncode:
            raise RuntimeError(f"{command[0]} failed: {made.stderr.strip()}")

    def start(self, *command: str, log: Path, ready: Callable[[], bool]) -> None:
        """Start the server and return when `ready` says that it serves."""
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command, user=self.user, stdout=output, stderr=output, cwd="/"
            )
        end = time.monotonic() + READY_SECONDS_MAX
        while not ready():
            if self._process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"{command[0]} did not start: {log.read_text()[-2000:]}")
            time.sleep(POLL_SECONDS)

    def stop(self) -> None:
        """Ask the server to end, and wait until it has."""
        if self._process is not None:
            # Not SIGTERM: PostgreSQL would wait until its last client has gone.
            self._process.send_signal(signal.SIGINT)
            self._process.wait()
        shutil.rmtree(self.sockets, ignore_errors=True)
