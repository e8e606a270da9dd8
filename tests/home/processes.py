"""Processes that stand by for a home, and serve it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer

ROOT = Path(__file__).parent.parent.parent
PATIENCE_SECONDS = 60.0


class Process:
    """One process of the command, which says on stderr what it does."""

    def __init__(self, *arguments: object) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "fmq", *map(str, arguments)],
            cwd=ROOT,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.written: list[str] = []

    def wait_for(self, text: str) -> str:
        """Return the next line with `text`. Raises AssertionError if the process ends before."""
        assert self.process.stderr is not None
        late = Timer(PATIENCE_SECONDS, self.process.kill)
        late.start()
        try:
            for line in self.process.stderr:
                self.written.append(line)
                if text in line:
                    return line
        finally:
            late.cancel()
        raise AssertionError(f"it has ended without {text!r}: {self.written}")

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def end(self) -> int:
        """End it as a supervisor does. Return its exit code."""
        self.signal(signal.SIGTERM)
        return self.ended()

    def ended(self) -> int:
        """Wait for its end. Return its exit code."""
        return self.process.wait(PATIENCE_SECONDS)


class Fleet:
    """Machines that share a home in a directory."""

    def __init__(self, path: Path, *, home: str | None = None) -> None:
        self.path = path
        self.home = home or f"file://{path}/home"
        self.token = path / "token"
        self.token.touch(0o600)
        self.token.write_text(os.urandom(32).hex())
        self.all: list[Process] = []

    def standby(self, name: str, *more: object, after: float = 2.0) -> Process:
        return self._start("standby", self.home, self.path / name, "--after", after, *more)

    def serve(self, name: str) -> Process:
        return self._start("serve", self.path / name, "--home", self.home)

    def _start(self, *arguments: object) -> Process:
        listen = ("--listen", "127.0.0.1:0", "--token-file", self.token)
        made = Process(arguments[0], *listen, *arguments[1:])
        self.all.append(made)
        return made

    def end(self) -> None:
        for each in self.all:
            each.kill()
            assert each.process.stderr is not None
            each.process.stderr.close()


@contextmanager
def fleet(path: Path) -> Iterator[Fleet]:
    made = Fleet(path)
    try:
        yield made
    finally:
        made.end()
