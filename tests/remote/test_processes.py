"""Processes of this machine share a directory: one serves, the others connect."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import fmq
from fmq.basics.clock import SystemClock, Waitable
from fmq.errors import Locked, NotServed
from tests.remote.served import eventually, is_refused

ROOT = Path(__file__).parent.parent.parent
# Each process connects, says so, and then sends the number of messages that it is given.
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
        self._process.communicate(timeout=60)
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


def signal_servers(path: Path, number: signal.Signals) -> None:
    for process in servers(path):
        with suppress(ProcessLookupError):  # one that came too late to serve ends by itself
            os.kill(process, number)


def kill_servers(path: Path) -> None:
    signal_servers(path, signal.SIGKILL)


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "d"
    yield path
    kill_servers(path)


def test_eight_processes_share_a_directory_whose_server_is_killed(path: Path) -> None:
    """All connect at once where no process serves. Nothing is lost, doubled or out of order."""
    rounds, count = 4, 5
    clients = [Client(path, f"client{n}") for n in range(8)]
    for number in range(rounds):
        for client in clients:
            client.order(count)
        if number:
            kill_servers(path)
        for client in clients:
            client.wait()
    for client in clients:
        client.end()
    with fmq.connect(path) as engine:  # the last kill may have met no order
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


def test_no_process_is_started_if_the_caller_forbids_it(path: Path) -> None:
    with pytest.raises(NotServed, match="fmq serve"):
        fmq.connect(path, start=False, retry_for=0.0)
    assert servers(path) == []


def test_options_apply_in_the_call_that_starts_the_process(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with fmq.connect(path, fmq.Options(queues=3)) as first:
        assert first.options == fmq.Options(queues=3)
        with fmq.connect(path, fmq.Options(queues=5)) as second:
            assert second.options.queues == 3
    assert "queues" in caplog.text


def test_a_server_on_demand_gives_way_to_an_opener_that_waits(path: Path) -> None:
    """Its clients go on with the new owner once that serves."""
    with fmq.connect(path) as client:
        assert client.send("t", b"0").offset == 0
        with pytest.raises(Locked, match="timeout="):
            fmq.open(path)
        with fmq.open(path, timeout=60) as engine:
            assert engine.send("t", b"1").offset == 1
            with pytest.raises(Locked, match="about to serve, try again"):
                fmq.connect(path, retry_for=0)
            with engine.serve():
                assert client.send("t", b"2").offset == 2
    with fmq.open(path, timeout=60) as engine:
        assert [each.body for each in engine.read("t")] == [b"0", b"1", b"2"]


class Clock:
    """The clock of this machine. It calls a function at each wait."""

    def __init__(self, at_wait: Callable[[], object]) -> None:
        self._clock = SystemClock()
        self._at_wait = at_wait
        self.time_us = self._clock.time_us
        self.monotonic = self._clock.monotonic

    def wait(self, lock: Waitable, timeout: float | None) -> bool:
        self._at_wait()
        return self._clock.wait(lock, timeout)


def test_a_server_that_was_too_slow_to_answer_is_asked_again_to_give_way(path: Path) -> None:
    with fmq.connect(path) as client:
        client.send("t", b"0")
        signal_servers(path, signal.SIGSTOP)
        clock = Clock(lambda: signal_servers(path, signal.SIGCONT))
        with fmq.open(path, timeout=60, clock=clock) as engine:
            assert [each.body for each in engine.read("t")] == [b"0"]


def test_a_server_that_was_asked_before_it_could_give_way_is_asked_again(path: Path) -> None:
    """It answers clients a moment before it knows how to end."""
    is_asked, ends = threading.Event(), threading.Event()

    def own() -> None:
        with fmq.open(path, timeout=60, clock=Clock(is_asked.set)) as engine:
            engine.send("t", b"0")

    with fmq.open(path) as first, first.serve() as served:
        thread = threading.Thread(target=own)
        thread.start()
        assert is_asked.wait(60)
        served.gives_way(ends.set)
        assert ends.wait(60)
    thread.join(60)
    with fmq.open(path) as engine:
        assert [each.body for each in engine.read("t")] == [b"0"]


def test_a_server_that_gives_way_waits_for_what_is_in_hand(path: Path) -> None:
    """So what a client works on is not handed to another one by the next server."""
    with fmq.connect(path) as client, fmq.connect(path) as other:
        client.send_many("t", [b"0", b"1"])
        (held,) = client.consumer("t", group="g").poll(limit=1)
        taken: list[bytes] = []

        def work() -> None:
            consumer = other.consumer("t", group="g")
            while not taken or taken[-1] != b"end":
                for each in consumer.poll(limit=2, timeout=60):
                    taken.append(each.body)
                    each.ack()

        def own() -> None:
            with fmq.open(path, timeout=60) as engine, engine.serve():
                is_open.set()
                is_over.wait(60)

        is_open, is_over = threading.Event(), threading.Event()
        threads = [threading.Thread(target=each) for each in (work, own)]
        for each in threads:
            each.start()
        eventually(lambda: is_refused(path))  # the process that serves waits for the ack
        held.ack()
        assert is_open.wait(60)
        client.send("t", b"end")
        threads[0].join(60)
        is_over.set()
        threads[1].join(60)
        assert taken == [b"1", b"end"]


def test_open_raises_locked_after_its_timeout_beside_a_serving_engine(tmp_path: Path) -> None:
    """Only a server that a client has started closes for another opener."""
    with fmq.open(tmp_path) as engine, engine.serve():
        with pytest.raises(Locked):
            fmq.open(tmp_path, timeout=0.1)
        with fmq.connect(tmp_path) as client:
            assert client.send("t", b"0").offset == 0
    with fmq.open(tmp_path, timeout=0.1) as engine:
        assert engine.queues("t")[0].next == 1


def test_a_server_in_the_foreground_takes_over(path: Path) -> None:
    with fmq.connect(path) as client:
        client.send("t", b"0")
        command = [sys.executable, "-m", "fmq", "serve", str(path)]
        with subprocess.Popen(command, cwd=ROOT) as process:
            # The client may start one, too, in the instant in which nobody has the directory.
            while servers(path) != [process.pid]:
                client.send("t", b"1")
            client.send("t", b"2")
            assert servers(path) == [process.pid]
            process.terminate()
        assert process.returncode == 0


def test_messages_held_by_a_client_are_given_back_when_serving_ends(tmp_path: Path) -> None:
    with fmq.open(tmp_path) as engine:
        engine.send("t", b"0")
        with engine.serve(), fmq.connect(tmp_path, retry_for=0) as client:
            taken = client.consumer("t", group="g").poll(limit=1)
            assert len(taken) == 1
            assert engine.consumer("t", group="g").poll() == []
        assert len(engine.consumer("t", group="g").poll()) == 1
