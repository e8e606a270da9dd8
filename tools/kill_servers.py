#!/usr/bin/env python3
"""Kill the server of some clients again and again: 1 if a message is lost or doubled.

    python tools/kill_servers.py DIR --rounds 50

In each round eight processes connect at once to a new directory below DIR, which no process serves,
and send. Then the server is killed while they send on. A line for each round: how long it took
until all had sent after the start, and after the kill. Each message must be there once.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import fmq

ROOT = Path(__file__).resolve().parent.parent
PROCESSES, MESSAGES = 8, 20
CLIENT = f"""
import sys, fmq
path, name = sys.argv[1:]
for line in sys.stdin:
    with fmq.connect(path) as engine:
        for number in range({MESSAGES}):
            engine.send("t", f"{{name}} {{line.strip()}} {{number}}".encode())
    print("sent", flush=True)
"""


def servers(path: Path) -> list[int]:
    """Return the processes that serve `path`."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            words = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
            if b"serve" in words and os.fsencode(path) in words:
                found.append(int(name))
    return found


def kill(path: Path) -> None:
    for process in servers(path):
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def send(clients: list[subprocess.Popen[str]], word: str) -> None:
    """Have all clients send."""
    for each in clients:
        assert each.stdin is not None
        each.stdin.write(f"{word}\n")
        each.stdin.flush()


def wait(clients: list[subprocess.Popen[str]]) -> None:
    """Return when all have sent."""
    for each in clients:
        assert each.stdout is not None
        if each.stdout.readline() != "sent\n":
            sys.exit("a client has failed")


def one_round(path: Path) -> tuple[float, float]:
    """Return the seconds until all have sent, from the start and from the kill."""
    commands = [[sys.executable, "-c", CLIENT, str(path), str(n)] for n in range(PROCESSES)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    clients = [
        subprocess.Popen(each, text=True, cwd=ROOT, **pipes)  # type: ignore[call-overload]
        for each in commands
    ]
    try:
        began = time.monotonic()
        send(clients, "first")
        wait(clients)
        first = time.monotonic() - began
        if len(servers(path)) != 1:
            sys.exit(f"{path}: {len(servers(path))} processes serve it")
        send(clients, "second")
        began = time.monotonic()
        kill(path)
        wait(clients)
        second = time.monotonic() - began
        with fmq.connect(path, start=False) as engine:
            bodies = sorted(each.body.decode() for each in engine.read("t", limit=9999))
        words = ("first", "second")
        sent = [f"{n} {w} {i}" for n in range(PROCESSES) for w in words for i in range(MESSAGES)]
        if bodies != sorted(sent):
            sys.exit(f"{path}: {len(bodies)} messages of {len(sent)}")
        return first, second
    finally:
        for each in clients:
            each.kill()
            each.communicate()
        kill(path)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path, metavar="DIR")
    parser.add_argument("--rounds", type=int, default=50)
    asked = parser.parse_args()
    taken = []
    with tempfile.TemporaryDirectory(dir=asked.directory) as folder:
        for number in range(asked.rounds):
            taken.append(one_round(Path(folder, str(number))))
            print("round {}: {:.2f} s, {:.2f} s".format(number, *taken[-1]), flush=True)
    first, second = zip(*taken, strict=True)
    print(f"from the start: median {median(first):.2f} s, at most {max(first):.2f} s")
    print(f"from the kill: median {median(second):.2f} s, at most {max(second):.2f} s")
    print(f"each message was there once, in {asked.rounds} rounds")
    return 0


if __name__ == "__main__":
    sys.exit(main())
