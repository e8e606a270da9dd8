"""A server that lives as long as the store that a peer opened: started beside it, on a socket
of its own, and stopped with it.

Its files lie in the store's directory and its socket in the temporary one, as the path of a
socket may have no more than a hundred bytes. It runs in the foreground in the process group of
the process that measures, and ends with it, whatever ends that.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.peers import programs

READY_SECONDS_MAX = 120.0
POLL_SECONDS = 0.005


class Server:
    """A running server program."""

    def __init__(self, user: str | None = None) -> None:
        """Make the folder of its socket; `user` is to run it, or the one that runs this."""
        self.user = user
        self._folder = programs.Folder("server-", user)
        self.sockets = str(self._folder.path)
        self._process: subprocess.Popen[bytes] | None = None

    def program(self, name: str) -> str:
        """Return the path of a program of PostgreSQL that the server's user can run."""
        return programs.program_for(self.user, name, self._folder.path)

    def hand_over(self, directory: Path) -> None:
        """Make `directory` the server user's own."""
        directory.mkdir(exist_ok=True)
        if self.user:
            programs.give(directory, self.user)

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
            self._process = programs.start(command, self.user, output)
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
        self._folder.remove()
