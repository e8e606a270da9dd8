"""A server takes so many connections, and no more: `tools/crowd.py` tries all 4,096."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest

import fmq
from fmq.errors import NotServed
from fmq.testing.crowded import serve_few
from tests.tool import said_by

MOST = 8


@contextmanager
def served(path: Path) -> Iterator[str]:
    """Serve an engine to at most MOST connections."""
    with fmq.open(path) as engine, serve_few(engine, MOST):
        yield str(path)


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_a_connection_over_the_limit_is_refused_until_another_ends(tmp_path: Path) -> None:
    with served(tmp_path / "d") as path, ExitStack() as crowd:
        connect = partial(fmq.connect, path, start=False)
        clients = [crowd.enter_context(connect()) for _ in range(MOST)]
        for number, client in enumerate(clients):
            client.send("t", b"%d" % number)
        with pytest.raises(NotServed, match=f"there are {MOST} connections, and no more are taken"):
            connect(retry_for=0.0)
        clients[0].close()
        with connect() as late:  # it tries until the other one has left
            assert len(late.read("t", limit=99)) == MOST
        assert clients[-1].send("t", b"the others do not notice").offset == MOST


def test_refused_connections_leave_nothing_behind(tmp_path: Path) -> None:
    with served(tmp_path / "d") as path, ExitStack() as crowd:
        connect = partial(fmq.connect, path, start=False)
        clients = [crowd.enter_context(connect()) for _ in range(MOST)]
        before = open_files()
        for _ in range(100):
            with pytest.raises(NotServed):
                connect(retry_for=0.0)
        clients[0].close()
        with connect():  # so all that were refused are gone
            assert open_files() <= before + 1


def test_the_crowd_tool_finds_that_memory_does_not_grow(tmp_path: Path) -> None:
    arguments = ["--connections", "100", "--rounds", "6"]
    said = said_by("crowd", str(tmp_path / "d"), *arguments)
    assert said.endswith("flat\n")
