"""`fmq ddl`: print the statement that makes the marker table, for people and migrations."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from fmq.bind.marker import DDL
from fmq.cli.output import Output


def add_to(verbs: Any, common: argparse.ArgumentParser) -> None:
    # Without the arguments in `common`: the output is SQL, and neither a table nor JSON.
    parser = verbs.add_parser("ddl", help="print the table that a bound database needs, as SQL")
    parser.add_argument("dialect", choices=sorted(DDL), help="the kind of database")
    parser.set_defaults(run=run, format="auto")


def run(arguments: argparse.Namespace, output: Output) -> int:
    sys.stdout.write(DDL[arguments.dialect])
    return 0
