"""How long from the start of a new process until it has the first message?

After kill -9: each time, a process opens the store, adds messages without closing it, and kills
itself; then a user's program of a few lines starts, opens it, and prints the first message. What is
timed is everything between, the interpreter's own start included. After a clean close,
only the call that opens is timed.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

from benchmarks.loop import Effort, Measured
from benchmarks.peers import peer_class
from benchmarks.row import Goal, Row
from benchmarks.stock import Stock, add

PEERS = ("lmdb", "sqlite3", "rocksdict", "redis", "postgresql")
ADDED = 20_000  # about 2 MB, half of what fmq replays at most
PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
MILLION = 1_000_000


def after_kill(subject: str, effort: Effort, *, stock: Stock) -> Measured:
    place = stock.place(subject, effort)
    program = peer_class(subject).first_message_program()
    _adopt_orphans()
    _add_and_die(subject, stock, place)
    started = time.perf_counter()
    with subprocess.Popen([sys.executable, "-c", program, str(place)], stdout=-1) as user:
        assert user.stdout is not None
        line = user.stdout.readline()
        elapsed = time.perf_counter() - started
    assert line and not user.returncode, f"{subject}: no first message after kill -9"
    return Measured(elapsed)


def _add_and_die(subject: str, stock: Stock, place: Path) -> None:
    """Have a process add messages to the store and then kill itself and what it started."""
    arguments = [subject, str(place), str(stock.singly), str(ADDED)]
    command = [sys.executable, "-m", "benchmarks.victim", *arguments]
    died = subprocess.run(command, check=False, start_new_session=True)
    assert died.returncode == -signal.SIGKILL, f"{subject}: the process that was to die failed"
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()


def _adopt_orphans() -> None:
    """Become the parent of what a killed process leaves behind, so that it can be waited for.

    A server does not start while one of those that served the directory before is still there,
    and be it as a zombie that nobody has asked about.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def after_close(subject: str, effort: Effort, *, stock: Stock) -> Measured:
    place = stock.place(subject, effort)
    add(subject, stock, place, 1).close()
    program = peer_class(subject).first_message_program() + "; print(opening)"
    command = [sys.executable, "-c", program, str(place)]
    made = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return Measured(float(made.stdout.split()[-1]) * 1000)


def row(millions: int, *, singly: bool) -> Row:
    stock = Stock(millions * MILLION, singly=singly)
    how = "one by one" if singly else "batched"
    name = "reopen-singly" if singly else "reopen"
    goals = [Goal("figure", 0.25)]
    if millions > 1:
        # "The same for both lengths": as far apart as two runs of the same thing are.
        goals.append(Goal("row", 1.15, row=f"{name}-1m"))
    return Row(
        name=f"{name}-{millions}m",
        title=f"kill -9 with {millions} M stored ({how}), new process to first message",
        unit="s",
        work=partial(after_kill, stock=stock),
        subjects=("fmq", *(() if singly else PEERS)),
        goals=tuple(goals),
        more_is_better=False,
        stock=(stock,),
    )


CLEAN = Stock(5 * MILLION)

ROWS = (
    row(1, singly=False),
    row(5, singly=False),
    row(1, singly=True),
    row(5, singly=True),
    Row(
        name="open-clean",
        title="open() with 5 M stored after a clean close",
        unit="ms",
        work=partial(after_close, stock=CLEAN),
        subjects=("fmq", "lmdb", "sqlite3", "rocksdict"),
        goals=(Goal("figure", 60),),
        more_is_better=False,
        stock=(CLEAN,),
    ),
)
