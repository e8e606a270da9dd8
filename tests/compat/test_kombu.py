"""kombu and Celery on fmq: messages, acks and fanout, and real workers in other processes."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from celery.exceptions import TaskRevokedError
from kombu import Connection, Consumer, Exchange, Producer, Queue

import fmq
import fmq.bind
import fmq.compat.kombu  # makes fmq:// known
from fmq.errors import BadOption
from tests.machine import NEEDS_SEMAPHORES
from tools import kill_celery

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[fmq.Engine]:
    with fmq.open(tmp_path / "jobs") as engine:
        yield engine


@contextmanager
def connected(engine: fmq.Engine) -> Iterator[Any]:
    with Connection("fmq://", transport_options={"engine": engine}) as connection:
        yield connection


def taken(queue: Any) -> list[Any]:
    """Take and ack all messages of a SimpleQueue."""
    found: list[Any] = []
    while True:
        try:
            message = queue.get(block=False)
        except queue.Empty:
            return found
        found.append(message.payload)
        message.ack()


def test_messages_are_taken_in_order_and_once(engine: fmq.Engine) -> None:
    with connected(engine) as one, connected(engine) as two:
        queue = one.SimpleQueue("q")
        for number in range(5):
            queue.put({"number": number})
        assert queue.qsize() == 5
        assert taken(two.SimpleQueue("q")) == [{"number": number} for number in range(5)]
        assert taken(queue) == []
        assert queue.qsize() == 0


def test_a_get_returns_a_message_that_comes_while_it_waits(engine: fmq.Engine) -> None:
    with connected(engine) as one, connected(engine) as two, ThreadPoolExecutor(1) as pool:
        queue = two.SimpleQueue("q")
        got = pool.submit(one.SimpleQueue("q").get, timeout=60)
        while not any(each.seen_seconds == 0 for each in members(engine)):
            assert not got.done()
        queue.put("a")
        assert got.result().payload == "a"


def members(engine: fmq.Engine) -> list[fmq.MemberInfo]:
    """Return who is in the group of kombu; one that waits in a poll was seen 0 seconds ago."""
    return engine.group("kombu").members() if engine.groups("kombu") else []


def test_a_message_that_is_not_acked_is_redelivered(engine: fmq.Engine) -> None:
    """It was requeued, or its connection has ended. Then it says that it was delivered before."""
    with connected(engine) as one:
        queue = one.SimpleQueue("q")
        queue.put("a")
        message = queue.get(timeout=60)
        assert "redelivered" not in message.delivery_info
        message.requeue()
        again = queue.get(timeout=60)
        assert again.delivery_info["redelivered"]
    with connected(engine) as two:
        queue = two.SimpleQueue("q")
        last = queue.get(timeout=60)
        assert last.payload == "a"
        last.reject()
        assert taken(queue) == []
    (dead,) = engine.dead_letters("kombu").list()
    assert b"text/plain" in dead.body or b"json" in dead.body


def test_a_message_published_in_a_block_commits_with_it(engine: fmq.Engine, tmp_path: Path) -> None:
    database = sqlite3.connect(tmp_path / "shop.db")
    database.execute("PRAGMA synchronous = EXTRA")
    database.execute("CREATE TABLE orders (name TEXT)")
    fmq.bind.create_table(database)
    with connected(engine) as connection:
        queue = connection.SimpleQueue("q")
        for name, ends in (("1", True), ("2", False)):
            try:
                with engine.transaction(producer="shop", bind=database):
                    database.execute("INSERT INTO orders VALUES (?)", (name,))
                    queue.put(name)
                    if not ends:
                        raise fmq.RollBack
            except fmq.RollBack:
                pass
        assert taken(queue) == ["1"]
    database.close()


def test_a_fanout_reaches_each_queue_with_a_consumer(engine: fmq.Engine) -> None:
    """Those of a consumer that is gone are forgotten after a while."""
    exchange, got = Exchange("news", type="fanout"), []
    with connected(engine) as one, connected(engine) as two:
        queues = [Queue(f"of {number}", exchange, auto_delete=True) for number in range(2)]
        channel = one.channel()

        def note(body: Any, message: Any) -> None:
            got.append(body)
            message.ack()

        with Consumer(channel, queues, callbacks=[note]):
            Producer(two.channel(), exchange=exchange).publish("a", declare=[exchange])
            while len(got) < 2:
                one.drain_events(timeout=60)
        assert got == ["a", "a"]
        assert len(engine.marks(prefix="kombu/binding/")) == 2


def test_remote_control_is_handled_between_tasks(engine: fmq.Engine) -> None:
    """Handing out a task may take long in a worker, and the next one may be revoked meanwhile."""
    got: list[str] = []
    with connected(engine) as connection, connected(engine) as other:
        for number in range(3):
            other.SimpleQueue("tasks").put(f"task {number}")
        control = Queue("control", auto_delete=True)

        def note(body: str, message: Any) -> None:
            got.append(body)
            message.ack()
            if body == "task 0":
                Producer(other.channel()).publish("control", routing_key="control")

        with (
            Consumer(connection.channel(), [Queue("tasks", no_declare=True)], callbacks=[note]),
            Consumer(connection.channel(), [control], callbacks=[note]),
        ):
            while len(got) < 4:
                connection.drain_events(timeout=60)
    assert got == ["task 0", "control", "task 1", "task 2"]


def test_a_topic_exchange_routes_by_patterns(engine: fmq.Engine) -> None:
    """The bindings are those of all processes: another connection made them."""
    exchange = Exchange("logs", type="topic")
    with connected(engine) as one, connected(engine) as two:
        for name, key in (("errors", "*.error"), ("all", "#")):
            Queue(name, exchange, routing_key=key)(one.channel()).declare()
        producer = Producer(two.channel(), exchange=exchange)
        for key in ("web.error", "web.info"):
            producer.publish(key, routing_key=key, declare=[exchange])
        assert taken(two.SimpleQueue("errors")) == ["web.error"]
        assert taken(one.SimpleQueue("all")) == ["web.error", "web.info"]


def test_an_address_has_no_host_and_nobody_warns_of_that(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Connection(f"fmq://{tmp_path}/jobs") as connection:
        assert connection.info()["hostname"] is None
        assert connection.as_uri().endswith(f"{tmp_path}/jobs")
        connection.ensure_connection()
    fmq.stop(tmp_path / "jobs")
    assert caplog.text == ""


def test_an_address_without_a_directory_is_refused() -> None:
    for address in ("fmq://", "fmq://host/jobs"):
        with pytest.raises(BadOption):
            Connection(address).connect()


# --- Celery -------------------------------------------------------------------------------------


@contextmanager
def worker(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A worker of Celery's with two processes, as its command starts it."""
    command = [sys.executable, "-m", "celery", "-A", "tests.compat.celery_app", "worker"]
    process = subprocess.Popen(
        [*command, "-c", "2", "--loglevel", "WARNING", *arguments],
        env={**os.environ, "CELERY_APP": str(folder), "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with_group(process, signal.SIGKILL)
        process.wait()


def with_group(process: subprocess.Popen[bytes], number: int) -> None:
    if process.poll() is None:
        os.killpg(process.pid, number)


def app_in(folder: Path) -> Any:
    (folder / "results").mkdir()
    os.environ["CELERY_APP"] = str(folder)
    sys.modules.pop("tests.compat.celery_app", None)
    import tests.compat.celery_app

    return tests.compat.celery_app


def test_a_channel_whose_last_queue_was_cancelled_fetches_nothing(engine: fmq.Engine) -> None:
    """A thread that waits for the loop of a worker may fetch for it once more."""
    with connected(engine) as connection:
        channel = connection.channel()
        channel.basic_consume("q", False, print, "tag")
        assert channel.fetch(0.0) == []
        channel.basic_cancel("tag")
        assert channel.fetch(0.0) == []


@NEEDS_SEMAPHORES
def test_a_celery_worker_does_the_tasks(tmp_path: Path) -> None:
    """Results, a retry, an ETA and remote control. Then it ends by itself."""
    tasks = app_in(tmp_path)
    results = [tasks.add.delay(number, 1) for number in range(10)]
    tasks.flaky.delay("f")
    began = time.monotonic()
    later = tasks.add.apply_async((20, 1), countdown=1)
    with worker(tmp_path) as process:
        assert [each.get(timeout=60) for each in results] == [*range(1, 11)]
        assert later.get(timeout=60) == 21
        # Celery stores RETRY after it has sent the next attempt, which may have succeeded by then.
        # So the result of `flaky` may stay RETRY, with any broker: its attempts are looked at.
        wait_for(tmp_path / "ledger", lines=len(results) + 1 + 3)
        assert time.monotonic() >= began + 1
        (pong,) = tasks.app.control.ping(timeout=60, limit=1)
        assert [*pong.values()] == [{"ok": "pong"}]
        for act in (tasks.app.control.cancel_consumer, tasks.app.control.add_consumer):
            assert act("celery", reply=True, timeout=60, limit=1)
        assert tasks.add.delay(30, 1).get(timeout=60) == 31
        process.terminate()
        assert process.wait(timeout=60) == 0
    lines = (tmp_path / "ledger").read_text().splitlines()
    assert [line for line in lines if line.startswith("flaky")] == [
        f"flaky f {n}" for n in range(3)
    ]
    assert lines.count("add 20 1") == 1


@NEEDS_SEMAPHORES
def test_a_task_that_has_expired_is_revoked(tmp_path: Path) -> None:
    """The worker says so to the one who waits for its result; the transport drops no task."""
    tasks = app_in(tmp_path)
    expired = [tasks.add.apply_async((1, number), expires=0.001) for number in range(3)]
    in_time = tasks.add.apply_async((1, 3), expires=3600)
    with worker(tmp_path):
        assert in_time.get(timeout=60) == 4
        for each in expired:
            with pytest.raises(TaskRevokedError, match="expired"):
                each.get(timeout=60)
            assert each.state == "REVOKED"


@NEEDS_SEMAPHORES
def test_a_busy_worker_listens_to_its_remote_control(tmp_path: Path) -> None:
    """All its processes are in work, and a task waits in it, which is revoked."""
    tasks = app_in(tmp_path)
    naps = [tasks.nap.delay(name) for name in "ab"]
    with worker(tmp_path, "--prefetch-multiplier", "4"):
        ledger = tmp_path / "ledger"
        wait_for(ledger, lines=2)
        waits = tasks.nap.delay("c")
        (pong,) = tasks.app.control.ping(timeout=60, limit=1)
        assert [*pong.values()] == [{"ok": "pong"}]
        tasks.app.control.revoke(waits.id)
        assert tasks.app.control.ping(timeout=60, limit=1)
        assert not any(each.ready() for each in naps)
        (tmp_path / "over").touch()
        assert [each.get(timeout=60) for each in naps] == ["a", "b"]
        with pytest.raises(TaskRevokedError):
            waits.get(timeout=60)
    assert "nap c" not in ledger.read_text()


@NEEDS_SEMAPHORES
def test_a_task_is_redelivered_when_its_worker_is_killed(tmp_path: Path) -> None:
    """With acks_late, as Celery's documents say; a task with an ETA too."""
    tasks = app_in(tmp_path)
    waits = tasks.add.apply_async((1, 1), countdown=3)
    numbers = range(30)
    for number in numbers:
        tasks.work.delay(number)
    with worker(tmp_path):
        wait_for(tmp_path / "ledger", lines=3)
    with worker(tmp_path):
        wait_for(tmp_path / "ledger", lines=len(numbers) + 1)
        assert waits.get(timeout=60) == 2
    done = (tmp_path / "ledger").read_text().splitlines()
    assert {f"done {number}" for number in numbers} <= set(done)


def wait_for(ledger: Path, lines: int) -> None:
    deadline = time.monotonic() + 60
    while not ledger.exists() or len(set(ledger.read_text().splitlines())) < lines:
        assert time.monotonic() < deadline, "the worker does nothing"
        with fmq.connect(ledger.parent / "jobs") as client:
            client.read("nothing", timeout=0.05)  # wait a moment


@NEEDS_SEMAPHORES
def test_no_task_is_lost_when_all_processes_are_killed(tmp_path: Path) -> None:
    """Worker, client and server; `python tools/kill_celery.py DIR --kills 20` for longer."""
    print(kill_celery.run(tmp_path, kills=3, seed=5))


def test_messages_of_a_higher_priority_are_taken_first(engine: fmq.Engine) -> None:
    """9 first, as Celery's documents say of RabbitMQ."""
    with connected(engine) as connection:
        queue = connection.SimpleQueue("q")
        for number, priority in enumerate([0, 9, 3, 9]):
            queue.put(number, priority=priority)
        assert taken(queue) == [1, 3, 2, 0]


def test_a_message_that_has_expired_is_not_taken(engine: fmq.Engine) -> None:
    with connected(engine) as connection:
        queue = connection.SimpleQueue("q")
        queue.put("old", expiration=0.001)
        queue.put("new", expiration=1000)
        engine.read("nothing", timeout=0.01)  # wait a moment
        assert taken(queue) == ["new"]
