"""`fmq standby`: follow a home, and serve it once its owner is heard no more.

Any number of machines may stand by, each with a directory of its own. While they do, the owner
writes an entry several times within the seconds of --after, also if nothing is sent to it. Who has
taken over serves as `fmq serve` does. If another machine takes over from it, it stands by again.
Let a supervisor start it again if it ends.
"""

from __future__ import annotations

import argparse
import logging
from contextlib import ExitStack
from typing import Any

import fmq
from fmq.arguments.path import without_secrets
from fmq.basics.clock import SystemClock
from fmq.cli import serve
from fmq.cli.arguments import seconds
from fmq.cli.beside import check_beside
from fmq.cli.codes import FINE
from fmq.cli.output import Output, note
from fmq.cli.resolve_option import databases_in
from fmq.cli.supervised import notify
from fmq.engines.standby import Standby
from fmq.home.home_addresses import is_away
from fmq.server.doors import check_reach
from fmq.wire.network import public_address

LOOKS = 20  # looks at the home within the seconds of --after
LOOK_SECONDS_MAX = 1.0
NO_ADDRESS = "its owner serves at no address, so it cannot be asked for signs of life"
logger = logging.getLogger("fmq.home")


def add_to(verbs: Any, common: argparse.ArgumentParser) -> None:
    """Add the verb to the command line."""
    parser = verbs.add_parser(
        "standby",
        parents=[common],
        help="follow a home, and serve it once its owner is heard no more",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("home", metavar="HOME", help="file:///mnt/shared/shop or s3://bucket/shop")
    parser.add_argument("dir", metavar="DIR", help="the cache of this machine; may be empty")
    parser.add_argument(
        "--after",
        type=seconds,
        default=10.0,
        metavar="SECONDS",
        help="how long the owner may be silent; 10 by default",
    )
    parser.add_argument(
        "--tls-ca",
        metavar="FILE",
        help="certificates to trust when the owner is asked, in PEM; needed with --tls-cert",
    )
    serve.add_arguments(parser, listens=True)
    parser.set_defaults(run=run, on_demand=False, usage_error=parser.error)


def run(chosen: argparse.Namespace, output: Output) -> int:
    """Stand by, and serve, until a signal or an error that a person has to look at."""
    if chosen.tls_cert is not None and chosen.tls_ca is None:
        # In clear it would hear nothing of an owner that speaks TLS, and take over from it.
        chosen.usage_error("--tls-cert needs --tls-ca, by which the owner is asked over TLS, too")
    serve.allow_many_files()
    options, resolve = serve.options_in(chosen.options), databases_in(chosen.resolve)
    with serve.signals_wait(), serve.logs(None):
        while True:
            check_beside(chosen)  # before it is too late to mend it
            socket = serve.bound(chosen.tcp)
            check_reach(serve.reach_of(chosen, [socket]))  # for the same reason
            engine = _stand_by(chosen, socket, options, resolve)
            if engine is None:
                return FINE
            failure = serve.serve(chosen, engine, [socket])
            if not isinstance(failure, fmq.TakenOver):
                return serve.code_of(failure)
            logger.warning("%s", failure)


def _stand_by(
    chosen: argparse.Namespace, socket: Any, options: fmq.Options | None, resolve: dict[str, str]
) -> fmq.Engine | None:
    """Return the engine once this machine has taken over; None if it is told to end."""
    how = {"after": chosen.after, "token_file": chosen.token_file, "tls_ca": chosen.tls_ca}
    where = public_address([socket.getsockname()])
    assert where is not None, "the socket has an address of TCP"
    said = ""
    while True:
        try:
            standby = Standby(
                *(chosen.home, chosen.dir, options, SystemClock()), serves_at=where, **how
            )
            with ExitStack() as open_until_it_owns:
                open_until_it_owns.callback(standby.close)
                if not _wait(chosen, standby):
                    return None
                open_until_it_owns.pop_all()
            engine = standby.open(resolve)
        except fmq.TakenOver as error:  # another machine was faster
            logger.info("%s", error)
            continue
        except fmq.HomeRefused as error:
            if not is_away(error):
                raise
            if str(error) != said:
                logger.warning("%s This machine waits for it.", error)
                said = str(error)
                notify("READY=1")
            if serve.is_told_to_end(LOOK_SECONDS_MAX):
                notify("STOPPING=1")
                return None
            continue
        logger.warning("%s: taken over, and served at %s", without_secrets(chosen.home), where)
        return engine


def _wait(chosen: argparse.Namespace, standby: Standby) -> bool:
    """Return True once this machine may take over, False if it is told to end."""
    is_ready, said = False, ""
    while True:
        try:
            may_take_over = standby.may_take_over()
            problem = str(standby.refusal or "" if standby.has_address else NO_ADDRESS)
        except OSError as error:
            logger.warning("%s: gives no answer (%s)", without_secrets(chosen.home), error)
            may_take_over, problem = False, said
        if may_take_over:
            return True
        if not is_ready:
            is_ready = True
            notify("READY=1")
            note(
                f"standing by for {without_secrets(chosen.home)} with {chosen.dir}. Ctrl-C ends it."
            )
        if problem and problem != said:
            logger.warning(
                "%s: nobody is taken over from: %s", without_secrets(chosen.home), problem
            )
        said = problem
        if serve.is_told_to_end(min(chosen.after / LOOKS, LOOK_SECONDS_MAX)):
            notify("STOPPING=1")
            return False
