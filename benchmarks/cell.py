"""One cell of the table, in a process of its own: one subject does one row's work, once.

    python -m benchmarks.cell ROW SUBJECT EFFORT

EFFORT is an `Effort` as JSON; the answer is a line of JSON on standard output. A fresh process
each time, so that no subject inherits another's threads, garbage or warm caches of Python's own.
With `--stock`, the stores that the row needs are made instead, where they do not lie ready.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

from benchmarks import stock
from benchmarks.loop import Effort
from benchmarks.table import ROWS


def main(arguments: list[str]) -> None:
    row, subject, effort = ROWS[arguments[0]], arguments[1], decoded(arguments[2])
    if "--stock" in arguments:
        for each in row.stock:
            stock.make(subject, each, effort)
        return
    measured = row.work(subject, effort)
    print(json.dumps(dataclasses.asdict(measured)), flush=True)


def encoded(effort: Effort) -> str:
    """The effort as JSON."""
    return json.dumps({**dataclasses.asdict(effort), "directory": str(effort.directory)})


def decoded(text: str) -> Effort:
    """The effort that `encoded` made this text of."""
    fields = json.loads(text)
    return Effort(**{**fields, "directory": Path(fields["directory"])})


if __name__ == "__main__":
    main(sys.argv[1:])
