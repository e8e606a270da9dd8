"""The command `fmq`: runs a verb, prints errors and returns an exit code."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from io import TextIOWrapper

import fmq
from fmq.cli import (
    audit,
    backup,
    completion,
    config,
    dash,
    ddl,
    dead,
    delayed,
    deliver,
    demo,
    doctor,
    erase,
    explain,
    export,
    find,
    group,
    home,
    import_rows,
    info,
    limit,
    move,
    pause,
    read,
    reconcile,
    records,
    relay,
    relay_status,
    replay,
    report,
    salvage,
    schedule,
    send,
    serve,
    ship,
    sink,
    standby,
    stop,
    take_over,
    top,
    topic,
    topics,
    tx,
    verify,
    why,
)
from fmq.cli.codes import BROKEN_PIPE, ERROR, FINE, INTERRUPTED
from fmq.cli.output import discard, make_output, note
from fmq.cli.parser import Parser, WrongUsage, parse
from fmq.cli.place import groups_near

VERBS = (  # in the order of the help; one a line, so that two new ones merge without a conflict
    demo,
    doctor,
    top,
    why,
    dash,
    report,
    explain,
    send,
    import_rows,
    read,
    find,
    info,
    topics,
    topic,
    group,
    tx,
    dead,
    delayed,
    schedule,
    pause,
    limit,
    config,
    records,
    verify,
    backup,
    ship,
    home,
    standby,
    take_over,
    move,
    relay,
    relay_status,
    sink,
    deliver,
    audit,
    replay,
    salvage,
    reconcile,
    erase,
    export,
    serve,
    stop,
    ddl,
    completion,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb and return the exit code.

    Nothing is left for the interpreter to flush when it ends: if that failed, it would exit with a
    code of its own, 120.
    """
    try:
        code = _run_line(sys.argv[1:] if arguments is None else arguments)
    # argparse exits for --help, --version and wrong arguments.
    except SystemExit:
        if failure := _flush():
            return failure
        raise
    except OSError as error:
        return _not_shown(error)
    # Ctrl-C came before the verb began or after it ended. The verb handles a Ctrl-C while it runs.
    except KeyboardInterrupt:
        return INTERRUPTED
    return _flush() or code


def _run_line(words: Sequence[str]) -> int:
    """Run the verb of a command line. Exits with 2 if the line makes no sense."""
    try:
        return _run(parse(make_parser(), words))
    except WrongUsage as wrong:
        wrong.parser.refuse(str(wrong))


def _run(chosen: argparse.Namespace) -> int:
    """Run the chosen verb. Return the exit code, even after an error."""
    if sys.stdout is None:
        note("stdout is closed, so there is nowhere to show anything. Nothing was done.")
        return ERROR
    # File names may hold bytes that are no text, and not every terminal can show all characters.
    # Show such ones as \udcff or \xe9, as Python does, instead of failing. In UTF-8 only the former
    # occur, and JSON spells them alike.
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        how = chosen.format
        code: int = chosen.run(chosen, make_output(chosen.auto if how == "auto" else how))
        return code
    except fmq.UnknownGroup as error:
        note(f"{error} {groups_near(chosen.dir, error.group)}")
        return ERROR
    except fmq.FmqError as error:
        note(str(error))
        return ERROR
    except OSError as error:
        if error.filename is None:
            return _not_shown(error)
        note(str(error))
        return ERROR
    except KeyboardInterrupt:
        return INTERRUPTED


def _flush() -> int:
    """Write what stdout still buffers. Return the exit code of a failure, or 0."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        return _not_shown(error)
    return FINE


def _not_shown(error: OSError) -> int:
    """Return the exit code for output that could not be written, and discard the rest of it."""
    discard(sys.stdout)
    if isinstance(error, BrokenPipeError):
        return BROKEN_PIPE
    note(f"what there is to show could not be written: {error}")
    return ERROR


def make_parser() -> Parser:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "--format",
        choices=("auto", "table", "json"),
        default="auto",
        help="tables, or JSON lines; auto (the default) is tables on a terminal",
    )
    common.add_argument(
        "--json", dest="format", action="store_const", const="json", help="--format json"
    )
    parser = Parser(
        prog="fmq", description="An embedded transaction engine for messages: look and decide."
    )
    parser.add_argument("--version", action="version", version=f"fmq {fmq.__version__}")
    parser.set_defaults(auto="auto", parser=parser)
    verbs = parser.add_subparsers(title="verbs", required=True, metavar="VERB")
    for verb in VERBS:
        verb.add_to(verbs, common)
    return parser
