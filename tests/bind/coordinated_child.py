"""Is killed in the middle of a global transaction: `coordinated_child.py FOLDER ADDRESS STEP`.

At its STEP-th step; prints "done" if it had fewer.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import psycopg

import fmq
from tests.bind.coordinator import Coordinator


def main(folder: Path, address: str, kill_at: int) -> None:
    left = kill_at

    def step() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    with psycopg.connect(address) as database, fmq.open(folder / "shop") as engine:
        coordinator = Coordinator(folder / "decisions", database, engine, step)
        coordinator.insert_and_send(f"cut at {kill_at}")
    print("done")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
