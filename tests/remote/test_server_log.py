"""What a server logs: little of bad connections, with time, level and name, and a bounded file."""

from __future__ import annotations

import os
import re
import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

import fmq
from fmq.cli.serve import LOG_BYTES_MAX
from fmq.wire.frames import Op, frame
from fmq.wire.values import encode_values
from tests.remote.hostile import Hostile, served

LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} WARNING fmq\.server: a connection was ")


def test_bad_connections_are_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    """The first at once, then how many there were; nothing more when there are none."""
    with served() as server:
        for _ in range(1_000):
            Hostile(server).send(frame(Op.POLL, 1, encode_values([1, 0.0, True])))
        assert len(caplog.records) == 1
        assert "a first frame that is no HELLO" in caplog.records[0].getMessage()
        for _ in range(3):
            while server.loop.step():
                pass
        assert len(caplog.records) == 2
        assert "999 more connections" in caplog.records[1].getMessage()


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    """Let this process open no file and accept no connection within the block."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    os.close(lowest := os.open("/", os.O_RDONLY))
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_connections_without_a_descriptor_are_logged_once_a_minute(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The loop tries to accept a hundred times in one turn. The clients that it has are served."""
    with fmq.open(tmp_path) as engine, engine.serve(), ExitStack() as crowd:
        client = crowd.enter_context(fmq.connect(tmp_path, start=False))
        dials = [crowd.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(20)]
        with no_descriptor_left():
            for each in dials:
                each.connect(str(tmp_path / "SOCKET"))
            for _ in range(3):
                client.send("t", b"is answered after the loop has tried to accept")
        (record,) = caplog.records
    assert record.name == "fmq.server"
    assert "Too many open files" in record.getMessage()


def test_the_log_of_an_on_demand_process_has_times_and_a_limit(tmp_path: Path) -> None:
    """A directory was used for years; one more bad connection comes."""
    log = tmp_path / "SERVER.log"
    fmq.open(tmp_path).close()
    log.write_bytes(b"an old line\n" * (3 * LOG_BYTES_MAX // 12))
    log.chmod(0o600)
    with fmq.connect(tmp_path) as client:
        with socket.socket(socket.AF_UNIX) as bad:
            bad.connect(str(tmp_path / "SOCKET"))
            bad.sendall(frame(Op.POLL, 1, encode_values([1, 0.0, True])))
            while bad.recv(1000):
                pass
        client.sync()
    assert log.stat().st_size < LOG_BYTES_MAX
    lines = log.read_text().splitlines()
    assert set(lines[:-1]) == {"an old line"}
    assert LINE.match(lines[-1])
    fmq.open(tmp_path, timeout=60.0).close()  # ends the process
