"""A client in the child of a fork is another client; the parent's goes on."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NoReturn

import pytest

import fmq
from fmq.errors import Forked
from fmq.wire.processes import starting

JOIN_SECONDS = 60


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[fmq.RemoteEngine]:
    """A client of an engine that another process serves."""
    with fmq.connect(tmp_path / "d") as engine:
        yield engine


def in_child(work: Callable[[], None]) -> None:
    """Do something in the child of a fork, which must succeed."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def test_parent_and_child_of_a_fork_both_send(engine: fmq.RemoteEngine) -> None:
    """Also transactions whose ids are drawn, which must not be the same."""
    engine.send("t", b"before")

    def work() -> None:
        engine.send("t", b"child")
        with engine.transaction() as tx:
            tx.send("u", b"child")

    in_child(work)
    engine.send("t", b"parent")
    with engine.transaction() as tx:
        tx.send("u", b"parent")
    assert [each.body for each in engine.read("t")] == [b"before", b"child", b"parent"]
    assert [each.body for each in engine.read("u")] == [b"child", b"parent"]


def test_a_forked_child_cannot_use_objects_of_the_parent(engine: fmq.RemoteEngine) -> None:
    engine.send_many("t", [b"0", b"1"])
    consumer = engine.consumer("t", group="g")
    (taken,) = consumer.poll(limit=1)
    tx = engine.transaction(tx_id="T")
    tx.send("t", b"2")

    def work() -> None:
        for call in (tx.commit, tx.prepare, taken.ack, consumer.poll):
            with pytest.raises(Forked):
                call()
        with engine.consumer("t", group="g") as mine:
            assert [each.message.body for each in mine.poll()] == [b"1"]

    in_child(work)
    taken.ack()
    tx.commit()
    # The child has tried b"1", so a redelivery of it comes after the new messages.
    left = consumer.poll() + consumer.poll()
    assert [each.message.body for each in left] == [b"2", b"1"]


def _send(path: str, name: str, pipe: Connection) -> None:
    with fmq.connect(path) as engine:
        pipe.send(engine.send("t", name.encode()).offset)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_children_of_multiprocessing_connect(engine: fmq.RemoteEngine, method: str) -> None:
    """Each makes a connection of its own, while the parent has one."""
    context = multiprocessing.get_context(method)
    ends = []
    for number in range(3):
        ours, theirs = context.Pipe()
        child = context.Process(target=_send, args=(engine.path, f"child {number}", theirs))  # type: ignore[attr-defined]
        child.start()
        ends.append((child, ours))
    engine.send("t", b"parent")
    offsets = {ours.recv() for _, ours in ends}
    for child, _ in ends:
        child.join(JOIN_SECONDS)
        assert child.exitcode == 0
    assert len(offsets) == 3
    assert engine.queues("t")[0].next == 4


def test_a_client_that_is_imported_before_the_fork_serves_many_children(
    engine: fmq.RemoteEngine,
) -> None:
    """As gunicorn does it with --preload: each worker uses the client of the parent."""
    children = []
    for number in range(4):
        child = os.fork()
        if child == 0:
            try:
                for i in range(50):
                    engine.send("t", f"{number} {i}".encode())
            finally:
                os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)
    bodies = sorted(each.body.decode() for each in engine.read("t", limit=999))
    assert bodies == sorted(f"{number} {i}" for number in range(4) for i in range(50))


@contextmanager
def forked_child() -> Iterator[None]:
    """Fork a child that does nothing until the block has ended."""
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(tell)
        os.read(told, 1)
        os._exit(0)
    os.close(told)
    try:
        yield
    finally:
        os.close(tell)
        os.waitpid(child, 0)


def no_wait(seconds: float) -> NoReturn:
    raise AssertionError("the right to start a process is taken")


def test_a_child_forked_while_a_process_starts_does_not_keep_its_lock(
    tmp_path: Path,
) -> None:
    """A lock of flock is that of all copies of its file, and the child has one."""
    with ExitStack() as stack:
        with starting(str(tmp_path), no_wait):
            stack.enter_context(forked_child())
        with starting(str(tmp_path), no_wait):
            pass
