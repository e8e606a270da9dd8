"""Exports that are killed at each thing they do to the file system, one after the other.

Run as a program: `killing.py DIR OUTS`. For n = 1, 2, ... a child exports DIR to `OUTS/n` and
is killed with SIGKILL before the n-th of these; then a second one exports there again, and is not.
It ends with the first n that a child does not reach, and prints how many it were. Children are
forks of one process that has exported once, so that everything is imported.
"""

import os
import signal
import sys
from pathlib import Path
from typing import Any

from fmq.export import export

WATCHED = ("open", "os.", "shutil.", "fcntl.")
CHUNK_BYTES = 40_000


def main(path: str, outs: str) -> None:
    export(path, str(Path(outs, "first")), engine="arrow")
    kills = 0
    while _child(path, outs, kills + 1) == -signal.SIGKILL:
        kills += 1
        assert _child(path, outs, kills, kill=False) == 0
    print(kills)


def _child(path: str, outs: str, number: int, *, kill: bool = True) -> int:
    """Return how a child ended: its code, or minus the number of the signal."""
    pid = os.fork()
    if not pid:
        code = 1
        try:
            out = Path(outs, str(number))
            if kill:
                sys.addaudithook(_killer(str(out), number))
            export(path, str(out), engine="arrow", chunk_bytes=CHUNK_BYTES)
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _killer(out: str, number: int) -> Any:
    left = number

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal left
        if event.startswith(WATCHED) and (event == "fcntl.flock" or out in str(arguments)):
            left -= 1
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)

    return hook


if __name__ == "__main__":
    main(*sys.argv[1:])
