#!/usr/bin/env python3
"""Look whether a server's memory and open files stay flat: 1 if they do not, or a message is lost.

    python tools/soak.py DIR --minutes 60

`fmq serve` serves DIR, which is new. 1,000 connections wait in long polls, and 64 producers send to
64 consumers, each over a connection of its own. A line for each look, then the verdict.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import selectors
import socket
import subprocess
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import fmq
from fmq.wire.frames import VERSION, Op, Splitter, frame
from fmq.wire.processes import connect_to
from fmq.wire.values import encode_values

ROOT = Path(__file__).resolve().parent.parent
OPTIONS = {"segment_bytes": 4 << 20, "retain_bytes": 16 << 20}
CHILDREN = 4  # processes that share the producers and consumers
POLL_SECONDS = 20.0
LOOKS = 60
MEMORY_FACTOR, MEMORY_BYTES = 1.1, 8 << 20  # more than that is no noise
FILES = 16  # segments come and go


class Look(NamedTuple):
    """What the server holds at one moment."""

    seconds: float
    memory_bytes: int
    files: int


def look(process: int, began: float) -> Look:
    """Return what a process holds now."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    files = len(os.listdir(f"/proc/{process}/fd"))
    return Look(time.monotonic() - began, pages * os.sysconf("SC_PAGE_SIZE"), files)


def growth(looks: list[Look]) -> list[str]:
    """Return what has grown between the second third of the looks and the last one."""
    third = len(looks) // 3
    middle, last = looks[third : 2 * third], looks[2 * third :]
    found = []
    before, after = (median(each.memory_bytes for each in part) for part in (middle, last))
    if after > MEMORY_FACTOR * before + MEMORY_BYTES:
        found.append(f"memory grew from {before / 1e6:.1f} MB to {after / 1e6:.1f} MB")
    first, then = (max(each.files for each in part) for part in (middle, last))
    if then > first + FILES:
        found.append(f"open files grew from {first} to {then}")
    return found


def _joining(member: str) -> list[object]:
    """Return what a JOIN says."""
    return [["idle"], "idle", 30.0, [], member, None, None, None, False, False, False]


class Pollers:
    """Connections that wait for messages that never come, in one thread."""

    def __init__(self, path: str, count: int) -> None:
        self.answered = 0  # polls whose time was over
        self._selector = selectors.DefaultSelector()
        self._stops = False
        for number in range(count):
            made = connect_to(path)
            made.sendall(
                frame(Op.HELLO, 1, encode_values([VERSION, number.to_bytes(16), None, "host", 1]))
                + frame(Op.JOIN, 2, encode_values(_joining(f"idle-{number}")), handle=1)
                + self._poll()
            )
            self._selector.register(made, selectors.EVENT_READ, Splitter(1 << 20))
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    @staticmethod
    def _poll() -> bytes:
        return frame(Op.POLL, 3, encode_values([1, POLL_SECONDS, True]), handle=1)

    def _run(self) -> None:
        while not self._stops:
            for key, _ in self._selector.select(0.1):
                made = key.fileobj
                assert isinstance(made, socket.socket)
                data = made.recv(1 << 16)
                if not data:
                    raise ConnectionResetError("the server has closed an idle connection")
                for answer in key.data.feed(data):
                    assert not answer.flags, answer
                    if answer.op == Op.POLL:
                        self.answered += 1
                        made.sendall(self._poll())

    def close(self) -> None:
        """End all connections. Raises if one was closed before."""
        assert self._thread.is_alive(), "an idle connection was closed"
        self._stops = True
        self._thread.join()
        for key in [*self._selector.get_map().values()]:
            assert isinstance(key.fileobj, socket.socket)
            key.fileobj.close()
        self._selector.close()


def child(path: str, first: int, last: int) -> None:
    """Produce until a line of input comes, and consume until all is consumed. Print both counts."""
    stops, ready = threading.Event(), threading.Barrier(2 * (last - first) + 1)
    sent, received = [0] * (last - first), [0] * (last - first)

    def produce(number: int) -> None:
        with fmq.connect(path, start=False) as client:
            ready.wait()
            while not stops.is_set():
                client.send(f"t{first + number}", b"%d" % sent[number])
                sent[number] += 1

    def consume(number: int) -> None:
        with fmq.connect(path, start=False) as client:
            consumer = client.consumer(f"t{first + number}", group="g")
            ready.wait()
            while not (stops.is_set() and received[number] == sent[number]):
                for delivery in consumer.poll(timeout=0.2):
                    assert delivery.body == b"%d" % received[number], "out of order, or lost"
                    delivery.ack()
                    received[number] += 1

    threads = [
        threading.Thread(target=work, args=(number,), daemon=True)
        for work in (produce, consume)
        for number in range(last - first)
    ]
    for thread in threads:
        thread.start()
    ready.wait()  # what a slow machine connects later would look like growth
    print("ready", flush=True)
    sys.stdin.readline()
    stops.set()
    for thread in threads:
        thread.join(180)
    print(json.dumps([sum(sent), sum(received)]), flush=True)


def start_children(path: str, pairs: int) -> list[subprocess.Popen[str]]:
    """Start the processes that produce and consume, and wait until they do."""
    ends = [pairs * number // CHILDREN for number in range(CHILDREN + 1)]
    children = [
        subprocess.Popen(
            [sys.executable, __file__, path, "--child", f"{first}", f"{last}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for first, last in pairwise(ends)
    ]
    for each in children:
        assert each.stdout is not None
        assert each.stdout.readline() == "ready\n"
    return children


def soak(path: str, seconds: float, polls: int, pairs: int) -> list[str]:
    """Return what is wrong; nothing if all is well."""
    Path(path).mkdir(mode=0o700)
    options = ["--options", json.dumps(OPTIONS)]
    server = subprocess.Popen(
        [sys.executable, "-m", "fmq", "serve", path, *options], cwd=ROOT, text=True
    )
    try:
        fmq.connect(path, start=False, retry_for=120.0).close()  # as soon as it serves
        pollers = Pollers(path, polls)
        children = start_children(path, pairs)
        began, looks = time.monotonic(), []
        for number in range(1, LOOKS + 1):
            time.sleep(max(0.0, began + number * seconds / LOOKS - time.monotonic()))
            looks.append(found := look(server.pid, began))
            line = (
                f"{found.seconds:8.1f} s {found.memory_bytes / 1e6:8.1f} MB {found.files:6} files"
            )
            print(line, flush=True)
        wrong = growth(looks)
        counts = [json.loads(each.communicate("\n", timeout=240)[0]) for each in children]
        sent, received = (sum(each) for each in zip(*counts, strict=True))
        print(f"{sent:,} messages sent, {received:,} received; {pollers.answered:,} polls ended")
        if sent != received or not sent:
            wrong.append(f"{sent:,} messages were sent, and {received:,} received")
        pollers.close()
    finally:
        server.terminate()
        ended = server.wait(60)
    return wrong if not ended else [*wrong, f"the server ended with {ended}"]


def main() -> int:
    """Read the command line; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("directory", help="a new one")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--polls", type=int, default=1000, help="connections that only wait")
    parser.add_argument("--pairs", type=int, default=64, help="producers, and consumers")
    parser.add_argument("--child", type=int, nargs=2, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.child:
        child(chosen.directory, *chosen.child)
        return 0
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    wrong = soak(chosen.directory, 60 * chosen.minutes, chosen.polls, chosen.pairs)
    print("\n".join(wrong) or "flat")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
