"""Runs a Python program in a process of its own that has imported fmq already.

A new Python spends half a second of the processor on the imports. One process makes them once, and
is forked for each program. The child has its own id, files, environment and folder, may be killed,
and ends as any Python does. What a test says about the imports themselves, or about options of
Python other than `-W error`, needs a new Python.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).parent.parent

spent = [0.0]
"""Seconds of the processor that programs have used: no child of this process is waited for here."""


class Mother:
    """The process that is forked for each program."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.warm_mother", str(theirs.fileno())],
                cwd=ROOT,
                pass_fds=[theirs.fileno()],
            )
        atexit.register(self.close)

    def run(self, asked: dict[str, Any], files: Sequence[int], timeout: float) -> int:
        """Run a program to its end. Return its exit code, or the signal by which it died, as a
        negative number.
        """
        self._control.settimeout(None)
        socket.send_fds(self._control, [json.dumps(asked).encode()], files)
        child = int(self._control.recv(99))
        self._control.settimeout(timeout)
        try:
            ended = self._control.recv(99)
        except TimeoutError:
            os.kill(child, signal.SIGKILL)
            self._control.settimeout(None)
            self._control.recv(99)
            raise subprocess.TimeoutExpired(asked["argv"], timeout) from None
        code, seconds = json.loads(ended)
        spent[0] += seconds
        return int(code)

    def close(self) -> None:
        self._control.close()
        self._process.wait()


@cache
def mother() -> Mother:
    return Mother()


def run_bytes(
    arguments: Sequence[object],
    *,
    cwd: Path | str | None = None,
    env: Mapping[str, str] | None = None,
    input: bytes = b"",
    stdout: int | None = None,
    timeout: float = 120,
) -> subprocess.CompletedProcess[bytes]:
    """Run `python ARGUMENTS` to its end, as subprocess.run does. Its output goes to `stdout` if one
    is given.
    """
    words = [str(word) for word in arguments]
    strict = words[:2] == ["-W", "error"]
    how, *rest = words[2:] if strict else words
    named = how in ("-c", "-m")
    what = rest.pop(0) if named else how
    asked = {
        "how": how if named else "file",
        "what": what,
        "argv": ["-c" if how == "-c" else what, *rest],
        "cwd": os.path.abspath(cwd or os.getcwd()),
        "env": dict(os.environ if env is None else env),
        "strict": strict,
    }
    made = tempfile.TemporaryFile
    with made() as given, made() as out, made() as error:
        given.write(input)
        given.seek(0)
        files = [given.fileno(), out.fileno() if stdout is None else stdout, error.fileno()]
        code = mother().run(asked, files, timeout)
        return subprocess.CompletedProcess(words, code, _all(out), _all(error))


def _all(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read()


def run(arguments: Sequence[object], **how: Any) -> subprocess.CompletedProcess[str]:
    """Do as `run_bytes` does. The output is text."""
    done = run_bytes(arguments, **how)
    out, error = done.stdout.decode(), done.stderr.decode()
    return subprocess.CompletedProcess(done.args, done.returncode, out, error)
