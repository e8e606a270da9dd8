"""How much memory a process holds that has reopened a store of 5 M messages and read one.

Resident size, the interpreter included (a bare one has about 10 MB). Stored one by one is the
harder case, as then every message is a record of its own.
"""

from __future__ import annotations

import re
import subprocess
import sys
from functools import partial

from benchmarks.loop import Effort, Measured
from benchmarks.peers import peer_class
from benchmarks.row import Goal, Row
from benchmarks.stock import Stock

PEERS = ("sqlite3", "lmdb", "rocksdict")
STORED = 5_000_000
PRINT_STATUS = "; print(open('/proc/self/status').read())"


def measure(subject: str, effort: Effort, *, stock: Stock) -> Measured:
    program = peer_class(subject).first_message_program() + PRINT_STATUS
    command = [sys.executable, "-c", program, str(stock.place(subject, effort))]
    made = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found = re.search(r"VmRSS:\s+(\d+) kB", made.stdout)
    assert found, "the kernel shows no VmRSS"
    return Measured(int(found[1]) / 1024)


def row(*, singly: bool) -> Row:
    stock = Stock(STORED, singly=singly)
    return Row(
        name="memory-singly" if singly else "memory",
        title=f"memory after reopening with 5 M stored {'one by one' if singly else 'by 1,000'}",
        unit="MB",
        work=partial(measure, stock=stock),
        subjects=("fmq", *(() if singly else PEERS)),
        goals=(Goal("figure", 60),),
        more_is_better=False,
        stock=(stock,),
    )


ROWS = (row(singly=False), row(singly=True))
