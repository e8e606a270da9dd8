"""`run` and loops of clients, over a socket, and what becomes of a client that is killed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from threading import Lock, Thread

import fmq
from fmq import Delivery, Retry
from fmq.consume.calls.consumer import member_of

KILLED = """
import os, sys
import fmq

client = fmq.connect(sys.argv[1], start=False)
for delivery in client.consumer("t", group="g"):
    print(delivery.attempt, flush=True)
    os._exit(9)
"""


def ack_all(deliveries: Iterable[Delivery]) -> None:
    for each in deliveries:
        each.ack()


def test_clients_handle_in_threads_and_end_with_a_drain(tmp_path: Path) -> None:
    tried: list[tuple[bytes, int]] = []
    lock = Lock()

    def handle(delivery: Delivery) -> None:
        with lock:
            tried.append((delivery.body, delivery.attempt))
        if delivery.body == b"poison":
            raise ValueError("no")

    with (
        fmq.open(tmp_path / "d") as engine,
        engine.serve(),
        fmq.connect(tmp_path / "d", start=False) as client,
    ):
        client.send_many("t", [b"poison", *[b"%d" % number for number in range(50)]])
        with client.consumer("t", group="g", retry=Retry(3, backoff=0)) as consumer:
            threads = [
                Thread(target=consumer.run, args=(handle,), kwargs={"workers": 2}),
                Thread(target=ack_all, args=(consumer,)),
            ]
            for thread in threads[:1]:
                thread.start()
            while client.groups("g")[0].unread:
                client.send("other", b"")  # something to do meanwhile
            threads[1].start()
            assert consumer.drain(timeout=60)
            for thread in threads:
                thread.join(60)
                assert not thread.is_alive()
        assert sorted(tried) == sorted(
            [*[(b"%d" % number, 1) for number in range(50)], *[(b"poison", n) for n in (1, 2, 3)]]
        )
        (dead,) = client.dead_letters("g").list()
        assert (dead.attempts, dead.reason) == (3, "ValueError: no")


def test_the_attempt_of_a_client_that_is_killed_counts(tmp_path: Path) -> None:
    path = tmp_path / "d"
    with fmq.open(path) as engine, engine.serve():
        engine.send("t", b"kills")
        for attempt in (1, 2):
            killed = [sys.executable, "-c", KILLED, str(path)]
            done = subprocess.run(killed, capture_output=True, text=True, timeout=180, check=False)
            assert (done.returncode, done.stdout) == (9, f"{attempt}\n"), done.stderr
        with engine.consumer("t", group="g") as consumer:
            (delivery,) = consumer.poll(timeout=60)
            assert delivery.attempt == 3


def test_a_job_of_run_is_one_request(tmp_path: Path) -> None:
    asked: list[int] = []
    with (
        fmq.open(tmp_path / "d") as engine,
        engine.serve(),
        fmq.connect(tmp_path / "d", start=False) as client,
        client.consumer("t", group="g") as consumer,
    ):

        def handle(delivery: Delivery) -> None:
            asked.append(client._door.link._requests._next_request)
            if len(asked) == 5:
                member_of(consumer).draining.is_on = True

        client.send_many("t", [b"job"] * 5)
        consumer.run(handle)
        assert asked == [*range(asked[0], asked[0] + 5)]
        assert not client.groups("g")[0].unread
