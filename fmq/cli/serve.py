"""`fmq serve`: have a directory open, and let other processes use it."""

from __future__ import annotations

import argparse
import json
import signal
import threading
from types import FrameType
from typing import Any

import fmq
from fmq.cli.codes import ERROR, FINE
from fmq.cli.output import Output, note

QUIET_SECONDS = 60.0
LOOK_SECONDS = 1.0
LET_GO_SECONDS = 10.0  # how long another process may take to let go of the directory


def add_to(verbs: Any, common: argparse.ArgumentParser) -> None:
    """Add the verb to the parser."""
    parser = verbs.add_parser(
        "serve", parents=[common], help="let other processes use a directory, by fmq.connect"
    )
    parser.add_argument("directory", help="it is made if it is missing")
    parser.add_argument("--options", metavar="JSON", help="an object with fields of fmq.Options")
    parser.add_argument(
        "--on-demand",
        action="store_true",
        help="end after a minute without a client, and at once if another process serves",
    )
    parser.set_defaults(run=run)


def run(chosen: argparse.Namespace, output: Output) -> int:
    """Serve until a signal, the end of the engine or, on demand, a minute without clients."""
    ended = threading.Event()

    def end(number: int, frame: FrameType | None) -> None:
        ended.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    try:
        timeout = 0.0 if chosen.on_demand else LET_GO_SECONDS
        engine = fmq.open(chosen.directory, _options(chosen.options), timeout=timeout)
    except fmq.errors.Locked as error:
        if chosen.on_demand:
            return FINE  # another process was faster
        raise error
    with engine:
        with engine.serve() as server:
            if chosen.on_demand:
                server.gives_way(ended.set)
            while not ended.wait(LOOK_SECONDS):
                if server.has_ended:
                    break
                if chosen.on_demand and server.quiet_seconds() > QUIET_SECONDS:
                    break
        failure = engine.stats().failure
    if failure is not None:
        note(failure)
        return ERROR
    return FINE


def _options(text: str | None) -> fmq.Options | None:
    return None if text is None else fmq.Options(**json.loads(text))
