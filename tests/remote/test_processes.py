"""Processes of this machine share a directory: one serves, the others connect."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import fmq
from fmq.errors import Locked, NotServed

ROOT = Path(__file__).parent.parent.parent
# Each process connects, says that it has, and then sends as many messages as it is told.
CLIENT = """
import sys, fmq
path, name = sys.argv[1:]
with fmq.connect(path) as engine:
    number = 0
    for line in sys.stdin:
        for _ in range(int(line)):
            receipt = engine.send("t", f"{name} {number}".encode())
            number += 1
        print(receipt.offset, flush=True)
"""


class Client:
    """A process that sends."""

    def __init__(self, path: Path, name: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", CLIENT, str(path), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )

    def order(self, count: int) -> None:
        """Tell it to send `count` messages."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{count}\n")
        self._process.stdin.flush()

    def wait(self) -> int:
        """Return the offset of the last message once all are sent."""
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())

    def end(self) -> None:
        self._process.communicate(timeout=30)
        assert self._process.returncode == 0


def servers(path: Path) -> list[int]:
    """The processes that serve a directory, or try to."""
    found = []
    for name in os.listdir("/proc"):
        with suppress(OSError):
            if name.isdigit():
                words = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
                if b"serve" in words and os.fsencode(path) in words:
                    found.append(int(name))
    return found


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "d"
    yield path
    for process in servers(path):
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def test_eight_processes_share_a_directory_whose_server_is_killed(path: Path) -> None:
    """All connect at once where no process serves. Nothing is lost, doubled or out of order."""
    rounds, count = 4, 5
    clients = [Client(path, f"client{n}") for n in range(8)]
    for number in range(rounds):
        for client in clients:
            client.order(count)
        if number:
            for process in servers(path):
                os.kill(process, signal.SIGKILL)
        for client in clients:
            client.wait()
    for client in clients:
        client.end()
    with fmq.connect(path, start=False) as engine:
        bodies = [message.body.decode() for message in engine.read("t", limit=9999)]
    assert len(bodies) == len(clients) * rounds * count
    for n in range(8):
        mine = [body for body in bodies if body.startswith(f"client{n} ")]
        assert mine == [f"client{n} {i}" for i in range(rounds * count)]


def test_an_engine_lets_others_in_while_it_serves(path: Path) -> None:
    with fmq.open(path) as engine:
        with pytest.raises(Locked, match=r"engine\.serve\(\)"):
            fmq.connect(path, retry_for=0.1)
        with engine.serve() as serving:
            assert engine.serve() is serving
            with fmq.connect(path) as client:
                client.send("t", b"1")
                assert [each.body for each in engine.read("t")] == [b"1"]
        with pytest.raises(Locked):
            fmq.connect(path, retry_for=0.1)


def test_no_process_is_started_if_the_caller_does_not_want_it(path: Path) -> None:
    with pytest.raises(NotServed, match="fmq serve"):
        fmq.connect(path, start=False, retry_for=0.0)
    assert servers(path) == []


def test_options_count_for_the_call_that_starts_the_process(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with fmq.connect(path, fmq.Options(queues=3)) as first:
        assert first.options == fmq.Options(queues=3)
        with fmq.connect(path, fmq.Options(queues=5)) as second:
            assert second.options.queues == 3
    assert "queues" in caplog.text
