"""`fmq serve` as a process of a test, which a supervisor would start like this."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event

import fmq
from fmq.errors import Locked, NotServed

ROOT = Path(__file__).parent.parent.parent
PATIENCE_SECONDS = 60.0
# It limits its own memory, or says which process the sockets are for, and then becomes the server.
STARTER = """
import os, resource, sys
memory = int(sys.argv[1])
if memory:
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
os.environ["LISTEN_PID"] = str(os.getpid())
if os.environ["LISTEN_FDS"] == "1":
    os.dup2(int(os.environ["PASSED"]), 3)
os.execv(sys.executable, [sys.executable, "-m", "fmq", "serve", *sys.argv[2:]])
"""


class Served:
    """A process that serves, and the socket where it says how it is."""

    def __init__(
        self, path: Path, *arguments: str, passed: socket.socket | None = None, memory: int = 0
    ) -> None:
        self.path = path
        self._told = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._told.bind(str(path.parent / "notify"))
        self._told.settimeout(PATIENCE_SECONDS)
        environment = {
            **os.environ,
            "NOTIFY_SOCKET": str(path.parent / "notify"),
            "LISTEN_FDS": "0" if passed is None else "1",
            "PASSED": "" if passed is None else str(passed.fileno()),
        }
        self.process = subprocess.Popen(
            [sys.executable, "-c", STARTER, str(memory), str(path), *arguments],
            env=environment,
            cwd=ROOT,
            stderr=subprocess.PIPE,
            pass_fds=[] if passed is None else [passed.fileno()],
            text=True,
        )

    def told(self) -> str:
        """Return what the process says next of its state."""
        return self._told.recv(100).decode()

    def end(self) -> str:
        """End it as a supervisor does; return what it has written."""
        self.process.send_signal(signal.SIGTERM)
        assert self.told() == "STOPPING=1"
        _, written = self.process.communicate(timeout=PATIENCE_SECONDS)
        assert self.process.returncode == 0, written
        self._told.close()
        return written


def eventually(is_true: Callable[[], bool]) -> None:
    """Wait until another thread or process has made `is_true` true."""
    ends = time.monotonic() + PATIENCE_SECONDS
    while not is_true():
        assert time.monotonic() < ends
        Event().wait(0.002)


def is_refused(path: Path) -> bool:
    """Whether no process takes a new client. One that gives no answer may only be slow."""
    try:
        fmq.connect(path, start=False, retry_for=0.0).close()
    except (NotServed, Locked) as error:
        return not isinstance(error.__cause__, BlockingIOError)
    return False


@contextmanager
def serving(path: Path, *arguments: str, **named: object) -> Iterator[Served]:
    """A process that serves `path`, until the block has ended."""
    served = Served(path, *arguments, **named)  # type: ignore[arg-type]
    try:
        assert served.told() == "READY=1"
        yield served
    finally:
        served.process.kill()
        served.process.wait()
        served._told.close()
        assert served.process.stderr is not None
        served.process.stderr.close()
