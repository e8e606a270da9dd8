"""huey on fmq: what only fmq promises. The tests of huey itself are in test_others.py."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from huey.exceptions import TaskException

import fmq
import fmq.bind
from fmq.compat.huey import FmqHuey, FmqStorage
from fmq.errors import BadOption

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[fmq.Engine]:
    with fmq.open(tmp_path / "jobs") as engine:
        yield engine


def test_a_task_enqueued_in_a_block_commits_with_it(engine: fmq.Engine, tmp_path: Path) -> None:
    """The order and its job, or neither; a task for later, too."""
    huey = FmqHuey("app", engine=engine, read_timeout=0.0, utc=False)
    done = []

    @huey.task()
    def mail(order: str) -> None:
        done.append(order)

    database = sqlite3.connect(tmp_path / "shop.db")
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = FULL")
    database.execute("CREATE TABLE orders (name TEXT)")
    fmq.bind.create_table(database)
    for name, ends in (("1", True), ("2", False)):
        before = len(huey)
        try:
            with engine.transaction(producer="shop", bind=database):
                database.execute("INSERT INTO orders VALUES (?)", (name,))
                mail(name)
                mail.schedule((f"{name} later",), delay=1000)
                assert len(huey) == before
                if not ends:
                    raise fmq.RollBack
        except fmq.RollBack:
            pass
    now = datetime.now()  # noqa: DTZ005 - as huey takes it
    later = now + timedelta(seconds=2000)
    for task in (huey.dequeue(), huey.dequeue()):
        huey.execute(task, now)  # which puts one of them into the schedule
    assert (huey.pending_count(), huey.scheduled_count()) == (0, 1)
    for task in huey.read_schedule(later):
        huey.execute(task, later)
    assert done == ["1", "1 later"]
    assert database.execute("SELECT name FROM orders").fetchall() == [("1",)]
    assert huey.dequeue() is None
    database.close()


@pytest.mark.parametrize("size", [0, 55, 56, 100_000])
def test_values_of_all_sizes_are_kept(tmp_path: Path, size: int) -> None:
    """Short ones are in their marks, others in messages. They survive the process."""
    path, value = tmp_path / "jobs", os.urandom(size)
    long_key = "k" * 300
    with fmq.open(path) as engine:
        storage = FmqStorage("app", engine=engine)
        for key in ("a", long_key):
            storage.put_data(key, b"old")
            storage.put_data(key, value)
    with fmq.open(path) as engine:
        storage = FmqStorage("app", engine=engine)
        assert storage.peek_data("a") == value
        assert storage.peek_many(["a", "b"]) == {"a": value}
        if size > 55:
            assert storage.result_items()[long_key] == value
        assert storage.pop_data(long_key) == value
        assert not storage.has_data_for_key(long_key)
        assert not storage.put_if_empty("a", b"x")


def test_of_many_callers_one_takes_a_lock_value_or_count(engine: fmq.Engine) -> None:
    """Threads, half of them clients as other processes have them, on the same keys at once."""
    engine.serve()
    storages = [FmqStorage("app", engine=engine), FmqStorage("app", path=engine.path)]

    def work(number: int) -> tuple[list[int], list[int]]:
        storage, got, popped = storages[number % 2], [], []
        for key in range(10):
            if storage.put_if_empty(f"lock {key}", b"1"):
                got.append(key)
            storage.incr("counter", 2)
            if storage.pop_data(f"value {key}") == b"v" * 100:
                popped.append(key)
        return got, popped

    for key in range(10):
        storages[0].put_data(f"value {key}", b"v" * 100)
    with ThreadPoolExecutor(6) as pool:
        found = [*pool.map(work, range(6))]
    for which in (0, 1):
        assert sorted(key for each in found for key in each[which]) == [*range(10)]
    assert storages[1].incr("counter", 0) == 6 * 10 * 2
    storages[1].close()


@contextmanager
def consumer(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """huey's own consumer, as its command starts it."""
    command = [sys.executable, "-m", "huey.bin.huey_consumer", "tests.compat.huey_app.huey"]
    environment = {**os.environ, "HUEY_APP": str(folder), "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [*command, "-s", "1", "-q", *arguments],
        env=environment,
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def app(folder: Path) -> Any:
    os.environ["HUEY_APP"] = str(folder)
    sys.modules.pop("tests.compat.huey_app", None)
    import tests.compat.huey_app

    return tests.compat.huey_app


@pytest.mark.parametrize("kind", ["thread", "process"])
def test_a_consumer_in_another_process_does_the_tasks(tmp_path: Path, kind: str) -> None:
    """Results, retries, a schedule and a lock, with huey's decorators."""
    tasks = app(tmp_path)
    results = [tasks.double(number) for number in range(10)]
    flaky, later = tasks.flaky("f"), tasks.double.schedule((21,), delay=0.1)
    locked = [tasks.alone(name) for name in ("a", "b")]
    with consumer(tmp_path, "-w", "3", "-k", kind):
        assert [each(blocking=True, timeout=60) for each in results] == [*range(0, 20, 2)]
        assert flaky(blocking=True, timeout=60) == "f" * 100
        assert later(blocking=True, timeout=60) == 42
        for result in locked:  # one that finds the lock taken fails
            with suppress(TaskException):
                result(blocking=True, timeout=60)
    lines = (tmp_path / "ledger").read_text().splitlines()
    assert lines.count("flaky f") == 3
    assert all(lines.count(f"double {number}") == 1 for number in (*range(10), 21))
    alone = [line for line in lines if line.endswith(("begins", "ends"))]
    assert alone[1::2] == [line.replace("begins", "ends") for line in alone[::2]]
    assert tasks.huey.result_count() == 0
    tasks.huey.storage.close()


def test_tasks_in_a_schedule_survive_their_consumer(tmp_path: Path) -> None:
    """A consumer that is killed holds the schedule. The next one gets all of it."""
    tasks = app(tmp_path)
    later = [tasks.double.schedule((number,), delay=3) for number in range(5)]
    now = tasks.double(100)
    with consumer(tmp_path, "-w", "1"):
        assert now(blocking=True, timeout=60) == 200
    with consumer(tmp_path, "-w", "1"):
        assert [each(blocking=True, timeout=60) for each in later] == [0, 2, 4, 6, 8]
    tasks.huey.storage.close()


def test_wrong_arguments_are_refused(engine: fmq.Engine) -> None:
    for wrong in ({}, {"path": "d", "engine": engine}):
        with pytest.raises(BadOption):
            FmqStorage("app", **wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        FmqStorage("app", engine="d")  # type: ignore[arg-type]
