"""`fmq top`: what a journal and its groups do right now, again and again.

Rates are the differences of two looks, an interval apart. On a terminal it goes on until Ctrl-C, in
a pipe it looks once. It is a client of the process that serves the directory, or else it reads the
files, so it can neither stop nor slow down an engine by more than a look.
"""

from __future__ import annotations

import argparse
import sys
import time
from functools import partial
from typing import Any

from fmq.cli.arguments import count, seconds
from fmq.cli.codes import FINE
from fmq.cli.output import Column, Output
from fmq.cli.place import reading
from fmq.findings.rates import (
    catch_up_said,
    compared,
    disk_said,
    growth_said,
    look,
    rate_said,
    retention_said,
    undecided_said,
)
from fmq.findings.text import brief, duration

BARS = "▁▂▃▄▅▆▇█"
HISTORY = 20  # looks that a line of bars shows


def add_to(verbs: Any, common: argparse.ArgumentParser) -> None:
    parser = verbs.add_parser(
        "top", parents=[common], help="rates, lag and what is in hand, live", description=__doc__
    )
    parser.add_argument("dir", metavar="DIR")
    parser.add_argument(
        "--interval", type=seconds, default=1.0, metavar="SECONDS", help="1 by default"
    )
    many = parser.add_mutually_exclusive_group()
    many.add_argument("--once", dest="count", action="store_const", const=1, help="--count 1")
    many.add_argument(
        "--count", type=count, metavar="N", help="end after N looks; 0 goes on, also in a pipe"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace, output: Output) -> int:
    left = (0 if sys.stdout.isatty() else 1) if args.count is None else args.count
    history: dict[str, list[float]] = {}
    with reading(args.dir, follows=True) as engine, output.screen(stays=left == 1) as show:
        before = look(engine)
        while True:
            time.sleep(args.interval)
            after = look(engine)
            rows = compared(before, after)
            for row in rows[1:]:
                rates = history.setdefault(row["group"], [])
                rates.append(row["acks_per_second"])
                del rates[:-HISTORY]
            show(partial(_draw, output, args.dir, rows, history))
            before = after
            left -= 1
            if left == 0:
                return FINE


def _draw(
    output: Output, path: str, rows: list[dict[str, Any]], history: dict[str, list[float]]
) -> None:
    output.facts("top", rows[0], TOP, title=path)
    # One look makes no curve.
    has_curve = any(len(rates) > 1 for rates in history.values())
    bars = Column("", "acks", of_row=lambda row: line_of_bars(history.get(row["group"], [])))
    columns = [*GROUPS, bars] if has_curve else GROUPS
    output.rows("group", columns, rows[1:], title="groups", empty="there is no group")


def line_of_bars(values: list[float]) -> str:
    """Return a bar for each value, the highest for the largest one."""
    most = max(values, default=0.0)
    if not most:
        return BARS[0] * len(values)
    return "".join(BARS[round(value / most * (len(BARS) - 1))] for value in values)


def _ms(number: float) -> str:
    return brief(number / 1000)


TOP = (
    Column("messages_per_second", "messages", show=rate_said),
    Column("bytes_per_second", "journal grows", show=growth_said),
    Column("syncs_per_second", "syncs", show=rate_said),
    Column("answer_ms", "answers in", show=_ms),
    Column("", "undecided", of_row=undecided_said),
    Column("delayed", "delayed"),
    Column("dead_letters", "dead letters"),
    Column("clients", "clients"),
    Column("", "disk", of_row=disk_said),
    Column("", "retention", of_row=retention_said),
    Column("trouble", "trouble", style="red"),
)
GROUPS = (
    Column("group", "group", style="bold", copied=True),
    Column("lag", "lag", right=True),
    Column("behind_seconds", "behind", right=True, show=duration),
    Column("arrive_per_second", "arrive", right=True, show=rate_said),
    Column("acks_per_second", "acked", right=True, show=rate_said),
    Column("", "caught up in", right=True, of_row=catch_up_said),
    Column("in_hand", "in hand", right=True),
    Column("members", "members", right=True),
)
