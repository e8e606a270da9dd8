"""`fmq.compat.Queue`: what outlives the process. Python's own tests are in test_others.py."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import fmq
from fmq.compat import Empty, Queue, ShutDown, Undecodable
from fmq.errors import BadOption

ROOT = Path(__file__).parent.parent.parent
TOPICS = count()


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[fmq.Engine]:
    with fmq.open(tmp_path / "d", fmq.Options(sync="never")) as engine:
        yield engine


def test_items_outlive_the_process(tmp_path: Path) -> None:
    """Those that were not taken; in their order."""
    for items in (["a", {"b": [1, None]}], ["ü"]):
        with fmq.open(tmp_path / "d") as engine:
            for item in items:
                Queue[Any](engine).put(item)
    with fmq.open(tmp_path / "d") as engine:
        assert Queue[Any](engine).get() == "a"
    with fmq.open(tmp_path / "d") as engine:
        queue = Queue[Any](engine)
        assert [queue.get(), queue.get()] == [{"b": [1, None]}, "ü"]
        with pytest.raises(Empty):
            queue.get_nowait()


def test_an_item_that_is_not_done_is_redelivered(tmp_path: Path) -> None:
    """With ack="task_done". Its getter has died, or has closed the queue. It comes among others."""
    with fmq.open(tmp_path / "d") as engine:
        queue = Queue[Any](engine, ack="task_done")
        for number in range(3):
            queue.put(number)
        assert [queue.get(), queue.get()] == [0, 1]
        queue.task_done()
        assert (queue.qsize(), queue.unfinished_tasks) == (1, 2)
    with fmq.open(tmp_path / "d") as engine:
        queue = Queue[Any](engine, ack="task_done")
        assert sorted([queue.get(), queue.get()]) == [1, 2]
        queue.close()
        with Queue[Any](engine, ack="task_done") as again:
            assert sorted([again.get(), again.get()]) == [1, 2]


def test_each_thread_marks_its_own_items_as_done(engine: fmq.Engine) -> None:
    queue = Queue[Any](engine, ack="task_done")
    for number in range(2):
        queue.put(number)
    assert queue.get() == 0
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(queue.get).result() == 1
        pool.submit(queue.task_done).result()
    queue.close()
    assert Queue[Any](engine).get() == 0


def test_an_item_put_in_a_block_commits_with_it(engine: fmq.Engine) -> None:
    queue = Queue[Any](engine)
    with pytest.raises(fmq.RollBack), engine.transaction():
        queue.put("lost with its block")
        raise fmq.RollBack
    with engine.transaction() as tx:
        queue.put("kept")
        tx.send("orders", b"1")
        assert queue.empty()
    assert queue.get() == "kept"
    assert queue.empty()


def test_an_item_that_json_cannot_represent_is_refused(engine: fmq.Engine) -> None:
    """Nothing is pickled, unless the program brings an encoder of its own."""
    queue = Queue[Any](engine)
    with pytest.raises(TypeError):
        queue.put({1, 2})
    assert queue.empty()
    bytes_only = Queue(engine, "raw", encoder=bytes, decoder=bytes)
    bytes_only.put(b"\xff")
    assert bytes_only.get() == b"\xff"


def test_the_error_for_an_undecodable_item_contains_it(engine: fmq.Engine) -> None:
    engine.send("queue", b"{")
    with pytest.raises(Undecodable, match="offset 0") as caught:
        Queue[Any](engine).get()
    assert caught.value.message.body == b"{"


def test_a_queue_that_is_shut_down_still_hands_out_its_items(engine: fmq.Engine) -> None:
    """And what is left after an immediate shutdown is there for the next one."""
    queue = Queue[Any](engine)
    for item in ("a", "b", "c"):
        queue.put(item)
    queue.shutdown()
    with pytest.raises(ShutDown):
        queue.put("d")
    assert queue.get() == "a"
    queue.task_done()
    queue.shutdown(immediate=True)
    with pytest.raises(ShutDown):
        queue.get()
    queue.join()
    again = Queue[Any](engine)
    assert [again.get(), again.get()] == ["b", "c"]


def test_a_shutdown_ends_waiting_calls(engine: fmq.Engine) -> None:
    empty, full = Queue[Any](engine, "empty"), Queue[Any](engine, "full", 1)
    full.put(1)
    with ThreadPoolExecutor(2) as pool:
        waiting = pool.submit(empty.get), pool.submit(full.put, 2)
        for queue in (empty, full):
            queue.shutdown()
        for each in waiting:
            assert isinstance(each.exception(timeout=60), ShutDown)


def test_join_waits_for_an_item_that_is_being_worked_on(engine: fmq.Engine) -> None:
    queue, done = Queue[Any](engine), threading.Event()

    def join() -> bool:
        queue.join()
        return done.is_set()

    queue.put(1)
    queue.get()
    with ThreadPoolExecutor(1) as pool:
        joined = pool.submit(join)
        done.set()
        queue.task_done()
        assert joined.result(timeout=60)


CHILD = """
import json, sys
from fmq.compat import Empty, Queue
with Queue(sys.argv[1], ack=sys.argv[2]) as queue:
    taken = []
    while len(taken) < 20:
        try:
            taken.append(queue.get(timeout=60))
        except Empty:
            break
        if taken[-1] is None:
            break
        queue.task_done()
print(json.dumps(taken))
"""


@pytest.mark.parametrize("ack", ["get", "task_done"])
def test_processes_share_a_queue(tmp_path: Path, ack: Any) -> None:
    """Each item goes to one of them; a full queue waits for another process to take one."""
    path = tmp_path / "d"
    with Queue[Any](path, maxsize=5, ack=ack) as queue:
        command = [sys.executable, "-c", CHILD, str(path), ack]
        children = [
            subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) for _ in range(2)
        ]
        for number in range(20):
            queue.put(number, timeout=60)
        for _ in children:
            queue.put(None)
        taken = []
        for child in children:
            written, _ = child.communicate(timeout=60)
            taken += [each for each in json.loads(written) if each is not None]
    assert sorted(taken) == [*range(20)]


def test_wrong_arguments_are_refused(engine: fmq.Engine) -> None:
    with pytest.raises(BadOption):
        Queue(engine, ack="never")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        Queue(17)  # type: ignore[arg-type]
