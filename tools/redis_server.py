"""A Redis server of the tests' own, on loopback, which appends to a file what it is told."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

from tools.ports import free_port

START_SECONDS = 120


def missing() -> str:
    """Return why there is no server; empty if there is one."""
    found = shutil.which("redis-server")
    return "" if found else "no redis-server on this machine: apt-get install redis-server"


class Server:
    """One server, with its data in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.address = f"redis://127.0.0.1:{self.port}/0"
        self.start()

    def start(self) -> None:
        """Start it, and wait until it answers."""
        where = ["--bind", "127.0.0.1", "--port", str(self.port), "--dir", str(self.folder)]
        how = ["--appendonly", "yes", "--save", ""]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(["redis-server", *where, *how], stdout=log, stderr=log)
        ends = time.monotonic() + START_SECONDS
        while not self._answers():
            if time.monotonic() > ends or self.process.poll() is not None:
                raise RuntimeError(f"no Redis: {(self.folder / 'log').read_text()[-2000:]}")
            time.sleep(0.02)

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 0.3) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(5) == b"+PONG"
        except OSError:
            return False

    def stop(self, how: signal.Signals = signal.SIGKILL) -> None:
        self.process.send_signal(how)
        self.process.wait()
