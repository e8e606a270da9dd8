"""Wherever a process is killed inside of Django's blocks, the rows and the messages agree.

The blocks are ours, or Django's own with an outbox.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from django.db import transaction

import fmq
from fmq.bind.django import atomic, attach
from tests.bind.databases import Database, Postgres, rows
from tests.bind.django_shop import Order, leave, point_at
from tests.bind.shop import PRODUCER, messages
from tests.budget import BUDGET

# Functions of fmq, Django and the driver, at whose call and return the process is killed.
STEPS = {"begin", "join", "insert_marker", "prepare", "commit", "confirm", "leave"}
STEPS_MAX = 99


class Killer:
    """A profiler that kills its process at a given step."""

    def __init__(self, step: int) -> None:
        self._steps_left = step

    def __call__(self, frame: FrameType, event: str, arg: Any) -> None:
        name = arg.__name__ if event.startswith("c_") else frame.f_code.co_name
        if name in STEPS:
            self._steps_left -= 1
            if not self._steps_left:
                os.kill(os.getpid(), signal.SIGKILL)


def place_in_block(engine: fmq.Engine, using: str, order: str) -> None:
    with atomic(engine, using, producer=PRODUCER) as tx:
        Order.objects.using(using).create(name=order)
        with transaction.atomic(using):
            Order.objects.using(using).create(name=f"{order}, in a savepoint")
        for message in (order, f"{order}, in a savepoint"):
            tx.send("orders", message.encode())


def place_by_outbox(engine: fmq.Engine, using: str, order: str) -> None:
    outbox = attach(engine, using, producer=PRODUCER)
    outbox.register()
    with transaction.atomic(using):
        Order.objects.using(using).create(name=order)
        outbox.transaction().send("orders", order.encode())
        with transaction.atomic(using):
            Order.objects.using(using).create(name=f"{order}, in a savepoint")
            outbox.transaction().send("orders", f"{order}, in a savepoint".encode())
        with suppress(fmq.RollBack), transaction.atomic(using):
            outbox.transaction().send("orders", b"never")
            raise fmq.RollBack


def live(folder: Path, using: str, step: int, *, outbox: bool) -> None:
    """Place one order whole, and die at a given step of the next."""
    place = place_by_outbox if outbox else place_in_block
    try:
        with fmq.open(folder / "shop", background=False) as engine:
            place(engine, using, f"{step} whole")
            sys.setprofile(Killer(step))
            place(engine, using, f"{step} cut")
            sys.setprofile(None)
            leave(using)
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def steps_of(database: Database, *, outbox: bool) -> range:
    """Return the steps at which a run kills."""
    if BUDGET > 1:
        return range(1, STEPS_MAX)
    return range(1 + 2 * isinstance(database, Postgres) + outbox, STEPS_MAX, 4)


@pytest.mark.parametrize("outbox", [False, True])
def test_a_process_that_is_killed_leaves_both_or_neither(
    database: Database, tmp_path: Path, *, outbox: bool
) -> None:
    """Kill it at every step of a block, its begin and end included. The next process goes on.

    A run kills each of the four, two databases with two kinds of blocks, at every fourth step, and
    together they are killed at all; with FMQ_BUDGET=2 each at all.
    Many processes run one after the other on one directory and one database. Each is forked
    without threads and connections. After its death the alias is asked about its order.
    """
    using = point_at(database, outbox=outbox)
    cut = set()
    for step in steps_of(database, outbox=outbox):
        child = os.fork()
        if not child:
            live(tmp_path, using, step, outbox=outbox)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "it says why on stderr"
        resolve = {PRODUCER: f"django://{using}"}
        with fmq.open(tmp_path / "shop", background=False, resolve=resolve) as engine:
            assert engine.undecided() == [], f"{step=}"
            there = rows(database)
            assert there == sorted(messages(engine)), f"{step=}"
        cut.add(f"{step} cut" in there)
        assert (f"{step} cut, in a savepoint" in there) == (f"{step} cut" in there)
        if not os.WIFSIGNALED(status):
            break
    else:
        raise AssertionError("so many steps?")
    assert cut == {True, False}, "it died on both sides of the commit"
    assert step > 20, "it died at many"
