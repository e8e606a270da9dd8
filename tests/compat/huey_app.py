"""An app of huey's on fmq, for the consumers and clients of tests in other processes."""

import os
from pathlib import Path

from fmq.compat.huey import FmqHuey

FOLDER = Path(os.environ["HUEY_APP"])
STORES = {"path": FOLDER / "jobs", "read_timeout": 0.2}
huey = FmqHuey("app", store_intermediate_errors=False, **STORES)


def note(what: object) -> None:
    """Write a line into the ledger: one write, so that a kill leaves no half of it."""
    ledger = os.open(FOLDER / "ledger", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(ledger, f"{what}\n".encode())
    os.close(ledger)


@huey.task()
def double(number: int) -> int:
    note(f"double {number}")
    return 2 * number


@huey.task(retries=2)
def flaky(name: str) -> str:
    note(f"flaky {name}")
    if (FOLDER / "ledger").read_text().count(f"flaky {name}\n") < 3:
        raise ValueError(name)
    return name * 100


@huey.task()
@huey.lock_task("one at a time")
def alone(name: str) -> str:
    note(f"{name} begins")
    sum(range(3_000_000))  # for a while
    note(f"{name} ends")
    return name
