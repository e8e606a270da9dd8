"""The command `fmq`: which verbs there are, and how their ends look to whoever called."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from io import TextIOWrapper
from typing import NoReturn

import fmq
from fmq.cli import bench, ddl, demo, export, info, records, tx, verify
from fmq.cli.codes import BROKEN_PIPE, ERROR, INTERRUPTED
from fmq.cli.output import make_output, note
from fmq.cli.text import printable

VERBS = (demo, info, records, tx, verify, export, bench, ddl)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb; the exit code."""
    chosen = make_parser().parse_args(arguments)
    if sys.stdout is None:
        note("stdout is closed, so there is nowhere to show anything. Nothing was done.")
        return ERROR
    # A name of a file may hold bytes that are no text, and not every terminal can write all text:
    # better shown as \\udcff or \\xe9, as Python has it, than not at all. In UTF-8 only the former
    # can happen, which JSON spells alike.
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        code: int = chosen.run(chosen, make_output(chosen.format))
        sys.stdout.flush()
        return code
    except fmq.FmqError as error:
        note(str(error))
        return ERROR
    except BrokenPipeError:
        _forget_stdout()
        return BROKEN_PIPE
    except OSError as error:
        where = "" if error.filename else "what there is to show could not be written: "
        note(f"{where}{error}")
        return ERROR
    except KeyboardInterrupt:
        return INTERRUPTED


class Parser(argparse.ArgumentParser):
    """One whose errors repeat nothing that a terminal obeys."""

    def error(self, message: str) -> NoReturn:
        super().error(printable(message))


def make_parser() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "--format",
        choices=("auto", "table", "json"),
        default="auto",
        help="tables, or JSON lines; auto (the default) is tables on a terminal",
    )
    parser = Parser(
        prog="fmq", description="An embedded transaction engine for messages: look and decide."
    )
    parser.add_argument("--version", action="version", version=f"fmq {fmq.__version__}")
    verbs = parser.add_subparsers(title="verbs", required=True, metavar="VERB")
    for verb in VERBS:
        verb.add_to(verbs, common)
    return parser


def _forget_stdout() -> None:
    """Nobody reads any more: let the interpreter's last flush go nowhere, in silence."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
