"""RQ on a Redis that syncs each write: jobs, and the processes that do them.

The workers are SimpleWorkers, which do jobs in their own process. RQ's usual worker forks one for
each job, which takes milliseconds.
"""

from __future__ import annotations

import multiprocessing
import time
from pathlib import Path
from typing import Any

from redis import Redis
from rq import Queue, SimpleWorker

from benchmarks.peers.redis_aof import RedisAof

fork = multiprocessing.get_context("fork")
done = fork.Value("q", 0)
times = fork.Array("d", 2)  # of the first job and of the last


def note(tasks: int, result: int | None) -> int | None:
    """Do a job."""
    with done.get_lock():
        done.value += 1
        if done.value in (1, tasks):
            times[done.value == tasks] = time.monotonic()
    return result


def _work(socket: str) -> None:
    worker: Any = SimpleWorker([Queue(connection=Redis(unix_socket_path=socket))])
    worker.work(burst=True, logging_level="ERROR")


def work(directory: Path, workers: int, tasks: int, result: int | None) -> tuple[float, float]:
    """Enqueue jobs and do them. Return the seconds for one of each."""
    server = RedisAof(directory)
    try:
        queue = Queue(connection=server.connect())
        began = time.monotonic()
        for _ in range(tasks):
            queue.enqueue(note, tasks, result, result_ttl=0 if result is None else 500)
        enqueued = (time.monotonic() - began) / tasks
        children = [fork.Process(target=_work, args=(server.socket,)) for _ in range(workers)]
        for each in children:
            each.start()
        for each in children:
            each.join()
        return enqueued, (times[1] - times[0]) / (tasks - 1)
    finally:
        server.close()
