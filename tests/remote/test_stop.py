"""`fmq stop`: a process that serves takes nothing new, lets clients settle, closes, and exits 0."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from threading import Event, Thread

import pytest

import fmq
from fmq.errors import Locked, NotServed, OutcomeUnknown
from fmq.testing import FakeClock
from tests.cli.command import fmq_json
from tests.remote.served import ROOT, eventually, is_refused, serving


def test_a_served_directory_is_closed_with_a_checkpoint_and_exit_code_0(tmp_path: Path) -> None:
    path = tmp_path / "shop"
    with serving(path) as served:
        with fmq.connect(path, start=False) as client:
            client.send("t", b"1")
        said = fmq_json("stop", path)
        assert said.code == 0
        assert said.of("stop")[0] == {
            "what": "stop",
            "path": str(path),
            "holder": f"process {served.process.pid}",
            "is_clean": True,
        }
        assert served.process.wait(60) == 0
    assert fmq.stop(path) == fmq.Stopped(str(path), None, is_clean=True)
    with fmq.open(path, background=False) as engine:
        assert engine.stats().recovery.clean


def test_clients_settle_what_they_have_and_get_nothing_new(tmp_path: Path) -> None:
    path = tmp_path / "shop"
    with serving(path) as served, fmq.connect(path, start=False, retry_for=60.0) as client:
        client.send_many("t", [b"0", b"1", b"2"])
        consumer = client.consumer("t", group="g")
        (one,) = consumer.poll(limit=1)
        found: list[fmq.Stopped] = []
        stopping = Thread(target=lambda: found.append(fmq.stop(path, timeout=30.0)))
        stopping.start()
        others = [
            Thread(target=lambda: client.send("t", b"3")),
            Thread(target=lambda: handed.extend(consumer.poll(limit=1))),
        ]
        handed: list[fmq.Delivery] = []
        eventually(lambda: is_refused(path))
        for each in others:
            each.start()
        assert client.groups("g")[0].unread == 3  # looks are answered
        assert not found
        assert not handed
        one.ack()
        stopping.join(60)
        assert found[0].is_clean
        assert served.process.wait(60) == 0
        (tmp_path / "notify").unlink()
        with serving(path):  # the next process gets what the first one left open
            for each in others:
                each.join(60)
            assert [each.message.body for each in handed] == [b"1"]
            handed[0].ack()
            assert [each.body for each in client.unread("g", "t")] == [b"2", b"3"]


def test_stop_waits_for_messages_in_hand_until_its_timeout(tmp_path: Path) -> None:
    path = tmp_path / "shop"
    with serving(path) as served, fmq.connect(path, start=False) as client:
        client.send("t", b"0")
        consumer = client.consumer("t", group="g")
        consumer.poll(limit=1)
        begun = time.monotonic()
        assert fmq.stop(path, timeout=0.3).is_clean
        assert 0.3 <= time.monotonic() - begun < 10
        assert served.process.wait(60) == 0


def test_a_server_on_demand_can_be_stopped_also_by_a_client(tmp_path: Path) -> None:
    path = tmp_path / "shop"
    with fmq.connect(path) as client:
        client.send("t", b"0")
        assert fmq.stop(path).is_clean
        client.send("t", b"1")  # and starts the next one
        client.stop()
    assert fmq.stop(path).is_clean
    with fmq.open(path, background=False, timeout=60.0) as engine:
        assert [each.body for each in engine.read("t")] == [b"0", b"1"]


def test_stop_names_the_process_of_a_program_that_it_cannot_end(tmp_path: Path) -> None:
    path = tmp_path / "shop"
    with fmq.open(path) as engine:
        for _ in range(2):
            with pytest.raises(Locked, match=f"process {os.getpid()}.*has it open, and is a"):
                fmq.stop(path)
            serving = engine.serve()
        with fmq.connect(path, start=False) as client, pytest.raises(Locked):
            client.stop()
        serving.close()
        ended: list[int] = []
        with (
            engine.serve(on_stop=lambda: ended.append(1)),
            fmq.connect(path, start=False) as client,
        ):
            client.stop()
            eventually(lambda: ended == [1])


def test_a_server_that_is_slow_to_answer_is_stopped_once_it_does(tmp_path: Path) -> None:
    path = tmp_path / "shop"
    with serving(path) as served:
        served.process.send_signal(signal.SIGSTOP)
        found: list[fmq.Stopped] = []
        stopping = Thread(target=lambda: found.append(fmq.stop(path)))
        stopping.start()
        stopping.join(3)
        assert stopping.is_alive()  # it does not say that nobody can stop the process
        served.process.send_signal(signal.SIGCONT)
        stopping.join(60)
        assert found[0].is_clean


@contextmanager
def sending(path: Path, acknowledged: list[int]) -> Iterator[Thread]:
    """Send numbers through a client, until no process serves. By its clock it waits for another."""

    def send() -> None:
        with fmq.connect(path, start=False, clock=FakeClock()) as client:
            try:
                for number in range(1_000_000):
                    client.send("t", b"%d" % number)
                    acknowledged.append(number)
            except (NotServed, OutcomeUnknown, Locked):
                pass

    thread = Thread(target=send)
    thread.start()
    yield thread
    thread.join()


@pytest.mark.parametrize("seed", range(4))
def test_a_server_killed_while_it_stops_loses_nothing_acknowledged(
    tmp_path: Path, seed: int
) -> None:
    """The kill falls at a moment by chance in the draining or closing."""
    path, random = tmp_path / "shop", Random(seed)
    acknowledged: list[int] = []
    with serving(path) as served:
        with sending(path, acknowledged):
            eventually(lambda: len(acknowledged) > 20)
            tool = subprocess.Popen(
                [sys.executable, "-m", "fmq", "stop", path],
                cwd=ROOT,
                stdout=subprocess.PIPE,
            )
            eventually(lambda: is_refused(path))
            Event().wait(random.uniform(0, 0.02))
            served.process.send_signal(signal.SIGKILL)
        code = tool.wait(60)
        (served_code,) = {served.process.wait(60)}
        said, _ = tool.communicate()
        assert (code, b'"is_clean": true' in said) == ((0, True) if code == 0 else (1, False))
        assert served_code in (0, -signal.SIGKILL)
    with fmq.open(path, background=False) as engine:
        found = [int(each.body) for each in engine.read("t", limit=1_000_000)]
    assert found[: len(acknowledged)] == acknowledged
    assert fmq.check(path).ok
