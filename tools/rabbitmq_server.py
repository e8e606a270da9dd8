"""A RabbitMQ server of the tests' own, on loopback, with streams."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

from tools.ports import free_ports

START_SECONDS = 120
PROGRAMS = "/usr/lib/rabbitmq/bin"
"""Where Debian has the script that any user may run; the one on the path asks who it is."""
COORDINATOR = b"rabbit_stream_coordinator"
CONFIG = """
listeners.tcp.1 = 127.0.0.1:{amqp}
stream.listeners.tcp.1 = 127.0.0.1:{stream}
stream.advertised_host = 127.0.0.1
stream.advertised_port = {stream}
log.console = false
"""


def missing() -> str:
    """Return why there is no server; empty if there is one."""
    found = _program("rabbitmq-server") and _program("epmd")
    return "" if found else "no rabbitmq-server on this machine: apt-get install rabbitmq-server"


def _program(name: str) -> str | None:
    return shutil.which(name, path=PROGRAMS) or shutil.which(name)


class Server:
    """One server, with its data in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.amqp, self.stream, distribution, names = free_ports(4)
        self.address = f"rabbitmq-stream://guest:guest@127.0.0.1:{self.stream}"
        self.queues = f"amqp://guest:guest@127.0.0.1:{self.amqp}/"
        (folder / "rabbitmq.conf").write_text(CONFIG.format(amqp=self.amqp, stream=self.stream))
        (folder / "plugins").write_text("[rabbitmq_stream].\n")
        node = f"fmq{self.amqp}@localhost"
        self._names = folder / "data" / node / "coordination" / node / "names.dets"
        self.environment = {
            **os.environ,
            "HOME": str(folder),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(names),
            "RABBITMQ_NODENAME": node,
            "RABBITMQ_DIST_PORT": str(distribution),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
            "RABBITMQ_CONF_ENV_FILE": str(folder / "none"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
            "RABBITMQ_MNESIA_BASE": str(folder / "data"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 1 +sbwt none",  # one busy thread is enough
        }
        self.start()

    def start(self) -> None:
        """Start it, and wait until it answers."""
        epmd, server = _program("epmd"), _program("rabbitmq-server")
        assert epmd is not None, missing()
        assert server is not None, missing()
        with (self.folder / "output").open("ab") as log:
            how = {"env": self.environment, "stdout": log, "stderr": log}
            # It would be started by the server otherwise, and stay when that is killed.
            self.names = subprocess.Popen([epmd], **how)  # type: ignore[call-overload]
            # A session of its own: the script is a shell, which has the server as its child.
            self.process = subprocess.Popen([server], **how, start_new_session=True)  # type: ignore[call-overload]
        ends = time.monotonic() + START_SECONDS
        while not (self._listens(self.amqp) and self._listens(self.stream)):
            if time.monotonic() > ends or self.process.poll() is not None:
                self.stop()
                raise RuntimeError(f"no RabbitMQ: {(self.folder / 'output').read_text()[-2000:]}")
            time.sleep(0.05)

    def _listens(self, port: int) -> bool:
        try:
            socket.create_connection(("127.0.0.1", port), 0.3).close()
        except OSError:
            return False
        return True

    def until_kept(self) -> None:
        """Return once the disk has what leads the streams of the server. It has that half a second
        after the first stream was made, and a kill before leaves streams that nobody leads.
        """
        ends = time.monotonic() + START_SECONDS
        while COORDINATOR not in self._names.read_bytes():
            if time.monotonic() > ends:
                raise RuntimeError(f"{self._names} names no coordinator of streams")
            time.sleep(0.02)

    def stop(self, how: signal.Signals = signal.SIGKILL) -> None:
        os.killpg(self.process.pid, how)
        self.process.wait()
        while self._listens(self.amqp) or self._listens(self.stream):
            time.sleep(0.02)  # the shell is gone, and its child still is going
        self.names.kill()
        self.names.wait()
