"""A server in a process of its own, which the tools and the tests kill: served.py DIR PORT

It asks about orphans at once. Every group whose name has "fifo" in it gets its messages in order.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).parent.parent
ROOT = PACKAGE.parent.parent
FIFO = [f"{me}-{group}" for me in ("python", "java", "node") for group in ("fifo", "push-fifo")]


class Served:
    """The process. `kill` is kill -9, and `start` goes on with the same directory and port."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.address = "127.0.0.1:0"
        self._process: Any = None

    def start(self) -> None:
        """Start the process, and wait until it serves."""
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(self.path), self.address],
            stdout=subprocess.PIPE,
            text=True,
        )
        self.address = self._process.stdout.readline().strip()
        if not self.address:
            raise RuntimeError("the server has not started; its error is above")

    @property
    def pid(self) -> int:
        """The process that serves."""
        return int(self._process.pid)

    def kill(self) -> None:
        """End the process with kill -9."""
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()


def main() -> None:
    """Serve until the process is killed."""
    sys.path[:0] = [str(PACKAGE), str(ROOT)]
    import threading

    import fmq
    import fmq_rocketmq

    path, where = sys.argv[1:]
    options = fmq.Options(
        check_after_seconds=0.5,
        check_backoff_seconds=0.5,
        # A question that a killed client has not answered is soon asked again.
        check_lease_seconds=1.0,
    )
    with (
        fmq.open(path, options, timeout=30.0) as engine,
        fmq_rocketmq.serve(engine, where, fifo_groups=FIFO) as server,
    ):
        print(server.address, flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
