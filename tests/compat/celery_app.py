"""An app of Celery's on fmq, for the workers and clients of tests in other processes."""

import os
import threading
from pathlib import Path

from celery import Celery

import fmq.compat.kombu  # noqa: F401 - makes fmq:// known

FOLDER = Path(os.environ["CELERY_APP"])
app = Celery("app", broker=f"fmq://{FOLDER}/jobs", backend=f"file://{FOLDER}/results")
app.conf.update(
    broker_connection_retry_on_startup=True,
    worker_prefetch_multiplier=1,
    task_acks_late=True,
    task_reject_on_worker_lost=True,
)


def note(what: object) -> None:
    """Write a line into the ledger: one write, so that a kill leaves no half of it."""
    ledger = os.open(FOLDER / "ledger", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(ledger, f"{what}\n".encode())
    os.close(ledger)


@app.task
def add(x: int, y: int) -> int:
    note(f"add {x} {y}")
    return x + y


@app.task(bind=True, max_retries=3, default_retry_delay=0)
def flaky(self, name: str) -> str:
    note(f"flaky {name} {self.request.retries}")
    if self.request.retries < 2:
        raise self.retry()
    return name


@app.task
def nap(name: str) -> str:
    """Work on something else until a test lets it end."""
    note(f"nap {name}")
    while not (FOLDER / "over").exists():
        threading.Event().wait(0.02)
    return name


@app.task
def work(number: int) -> int:
    """Compute for a moment, and say that it is done."""
    sum(range(200_000))
    note(f"done {number}")
    return number
