"""A process that adds messages to a store and kills itself, and what it started, with signal 9.

    python -m benchmarks.victim SUBJECT PLACE SINGLY COUNT

It must lead a process group of its own, as the whole group is killed.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from benchmarks.stock import Stock, add


def main(subject: str, place: str, singly: str, count: str) -> None:
    assert os.getpgrp() == os.getpid(), "others are in this group, and would die, too"
    stock = Stock(int(count), singly=singly == "True")
    kept_open = add(subject, stock, Path(place), stock.count)
    os.killpg(0, signal.SIGKILL)
    kept_open.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
