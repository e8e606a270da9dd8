#!/usr/bin/env python3
"""Look whether a server takes 4,096 connections, refuses the next in words, and stays as it was.

    python tools/crowd.py DIR --rounds 12

`fmq serve` serves DIR, which is new. In each round all connect, each client asks something, some
more are refused if these are as many as there may be, and all leave. A line for each round, then
the verdict: 1 if memory or open files grow, or something is not as it should be.
"""

from __future__ import annotations

import argparse
import resource
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import fmq
from fmq.server.doors import CONNECTIONS_MAX
from fmq.wire.frames import FAILED, VERSION, Frame, Op, Splitter, frame
from fmq.wire.processes import connect_to
from fmq.wire.values import decode_error, encode_values
from tools.soak import ROOT, growth, look

REFUSED = 64  # that try in each round although there is no room
PATIENCE_SECONDS = 60.0


def asks(number: int) -> bytes:
    """Return a HELLO of a client, and a request."""
    hello = encode_values([VERSION, number.to_bytes(16), None, "host", 1])
    return frame(Op.HELLO, 1, hello) + frame(Op.CALL, 2, encode_values(["sync", [], {}]))


def answers(made: socket.socket, count: int) -> list[Frame]:
    """Return the first answers; fewer if the connection was closed."""
    splitter = Splitter(1 << 20)
    found: list[Frame] = []
    while len(found) < count and (data := made.recv(1 << 16)):
        found += splitter.feed(data)
    return found


def connected(path: str, number: int) -> socket.socket:
    """Return a connection that has asked something."""
    made = connect_to(path)
    made.settimeout(PATIENCE_SECONDS)
    with suppress(BrokenPipeError, ConnectionResetError):
        made.sendall(asks(number))  # a server that refuses has closed, and has said why
    return made


def take_all(path: str, count: int) -> list[socket.socket]:
    """Return connections that are served."""
    crowd = [connected(path, number) for number in range(count)]
    for made in crowd:
        found = answers(made, 2)
        assert len(found) == 2, "a connection was closed"
        assert not any(each.flags & FAILED for each in found), decode_error(found[-1].payload)
    return crowd


def refuse_more(path: str, count: int) -> None:
    """Raise AssertionError unless one more is refused, with the number of connections."""
    for number in range(REFUSED):
        with connected(path, count + number) as made:
            error = decode_error(answers(made, 1)[0].payload)
        assert f"there are {count:,} connections, and no more are taken" in str(error), error


def leave(path: str, crowd: list[socket.socket], pid: int, idle_files: int) -> None:
    """Close all, and wait until the server has noticed."""
    for made in crowd:
        made.close()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while look(pid, 0.0).files > idle_files:
        assert time.monotonic() < deadline, "the server does not close the connections"
        fmq.connect(path, start=False).close()


def crowd(path: str, count: int, rounds: int) -> list[str]:
    """Return what is wrong; nothing if all is well."""
    Path(path).mkdir(mode=0o700)
    server = subprocess.Popen([sys.executable, "-m", "fmq", "serve", path], cwd=ROOT, text=True)
    try:
        fmq.connect(path, start=False).close()  # as soon as it serves
        began, looks = time.monotonic(), []
        idle_files = look(server.pid, began).files + 2  # a client may just be leaving
        for number in range(1, rounds + 1):
            made = take_all(path, count)
            looks.append(found := look(server.pid, began))
            if count == CONNECTIONS_MAX:
                refuse_more(path, count)
            line = f"round {number:3} {found.seconds:8.1f} s {found.memory_bytes / 1e6:8.1f} MB"
            print(f"{line} {found.files:6} files", flush=True)
            leave(path, made, server.pid, idle_files)
        wrong = growth(looks)
    finally:
        server.terminate()
        ended = server.wait(60)
    return wrong if not ended else [*wrong, f"the server ended with {ended}"]


def main() -> int:
    """Read the command line; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("directory", help="a new one")
    parser.add_argument("--connections", type=int, default=CONNECTIONS_MAX, help="at once")
    parser.add_argument("--rounds", type=int, default=12, help="at least 3")
    chosen = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    wrong = crowd(chosen.directory, chosen.connections, chosen.rounds)
    print("\n".join(wrong) or "flat")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
