"""`fmq ddl`: the statement that makes the marker table, for people and their migrations."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from fmq.bind.marker import DDL
from fmq.cli.output import Output


def add_to(verbs: Any, common: argparse.ArgumentParser) -> None:
    parser = verbs.add_parser(
        "ddl", parents=[common], help="print the table that a bound database needs"
    )
    parser.add_argument("dialect", choices=sorted(DDL), help="the kind of database")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace, output: Output) -> int:
    sys.stdout.write(DDL[arguments.dialect])
    return 0
