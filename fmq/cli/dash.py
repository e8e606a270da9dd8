"""`fmq dash`: pages for a browser about a directory: what is stuck, why, since when, and who holds
it.

It is a client of the process that serves the directory, so it can neither stop nor hold up an
engine. Each reader needs the token, which the printed address has. Each act asks for a reason
first, and is printed here.
"""

from __future__ import annotations

import argparse
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode

import fmq
from fmq.cli.codes import FINE
from fmq.cli.output import Output, note
from fmq.cli.person import person
from fmq.cli.signals import stopped_by_signals
from fmq.errors import BadOption
from fmq.findings.visit import connected, visit

RETRY_SECONDS = 5.0  # for how long a page waits for a process that serves
VARIABLE = "FMQ_DASH_TOKEN"


def add_to(verbs: Any, common: argparse.ArgumentParser) -> None:
    parser = verbs.add_parser(
        "dash", parents=[common], help="pages for a browser about a directory", description=__doc__
    )
    parser.add_argument("dir", metavar="DIR")
    parser.add_argument(
        "--at",
        metavar="HOST:PORT",
        default="127.0.0.1:8787",
        help="listen there; 127.0.0.1:8787 by default, and port 0 is any free one",
    )
    parser.add_argument(
        "--host",
        dest="hosts",
        metavar="NAME",
        action="append",
        default=[],
        help="a name by which readers reach it, such as that of a proxy; an address needs none",
    )
    parser.add_argument(
        "--token-file",
        metavar="FILE",
        help=f"the token, at least 16 characters; else that in {VARIABLE}, else a new one",
    )
    parser.add_argument("--read-only", action="store_true", help="the pages can only look")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace, output: Output) -> int:
    # Imported here: they are slow to import, and few verbs need them.
    from fmq.dash import router
    from fmq.dash.dash_server import DashServer
    from fmq.dash.gate import new_token

    given = _given(args.token_file)
    token = new_token() if given is None else given
    with visit(args.dir):  # raises for a name that was mistyped
        pass
    # If no process serves, that is known at once. Only later may a page wait for the next one.
    connected(args.dir).close()
    with fmq.connect(args.dir, start=False, retry_for=RETRY_SECONDS) as engine:
        app = router(
            engine,
            token,
            directory=args.dir,
            hosts=args.hosts,
            read_only=args.read_only,
            by=person(),
        )
        with _log(), stopped_by_signals() as stop, DashServer(app, args.at) as server:
            said = f"pages about {args.dir} at {server.url}"
            if given is None:
                said += f"enter?{urlencode({'token': token})}"
            note(f"{said} Ctrl-C ends them.")
            stop.wait()
    return FINE


class _ToNotes(logging.Handler):
    """Prints what was done as notes."""

    def emit(self, record: logging.LogRecord) -> None:
        note(self.format(record))


@contextmanager
def _log() -> Iterator[None]:
    """Print who did what on the pages, and what has failed."""
    log, handler = logging.getLogger("fmq.dash"), _ToNotes()
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)


def _given(file: str | None) -> str | None:
    """Return the token of the file or of the environment; None if there is neither."""
    if file is None:
        return os.environ.get(VARIABLE)
    try:
        with open(file, encoding="utf-8") as lines:
            return lines.readline().strip()
    except UnicodeDecodeError:
        raise BadOption(f"{file}: is no text, so it has no token. Nothing is served.") from None
