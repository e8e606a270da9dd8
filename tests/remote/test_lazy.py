"""A client that connects at its first call."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import fmq
from fmq.errors import Closed, NotServed
from fmq.testing import FakeClock


def test_a_lazy_client_connects_at_its_first_call(tmp_path: Path) -> None:
    path = tmp_path / "shop"
    engine = fmq.connect(path, lazy=True)
    assert not path.exists()
    with fmq.open(path) as served:
        served.serve()
        with engine:
            assert engine.send("t", b"1").offset == 0
            assert type(engine) is fmq.RemoteEngine
        with pytest.raises(Closed):
            engine.send("t", b"2")


def test_a_lazy_client_may_be_closed_before_it_connects(tmp_path: Path) -> None:
    engine = fmq.connect(tmp_path / "shop", lazy=True)
    engine.close()
    engine.close()
    with pytest.raises(Closed, match="before its first call"):
        engine.send("t", b"1")
    assert not (tmp_path / "shop").exists()


def test_a_call_that_cannot_connect_raises_and_the_next_one_tries_again(tmp_path: Path) -> None:
    path = tmp_path / "shop"
    engine = fmq.connect(path, lazy=True, start=False, clock=FakeClock())
    with pytest.raises(NotServed):
        engine.send("t", b"1")
    with fmq.open(path) as served:
        served.serve()
        engine.send("t", b"1")
        engine.close()


def test_parent_and_child_of_a_lazy_client_connect_separately(tmp_path: Path) -> None:
    path = tmp_path / "shop"
    engine = fmq.connect(path, lazy=True, start=False)
    with fmq.open(path) as served:
        served.serve()
        child = os.fork()
        if not child:
            code = 1
            try:
                engine.send("t", b"child")
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        engine.send("t", b"parent")
        assert [each.body for each in engine.read("t")] == [b"child", b"parent"]
        engine.close()
