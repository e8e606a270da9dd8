"""`fmq serve`: keep a directory open, and let other processes use it."""

from __future__ import annotations

import argparse
import json
import logging
import os
import re
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from json import JSONDecodeError
from typing import TYPE_CHECKING, Any, TextIO

import fmq
from fmq.arguments.path import without_secrets
from fmq.basics.clock import SystemClock
from fmq.cli.arguments import seconds
from fmq.cli.beside import check_beside, open_beside
from fmq.cli.codes import ERROR, FINE
from fmq.cli.output import Output, note
from fmq.cli.resolve_option import add_resolve, databases_in
from fmq.cli.supervised import notify, passed_sockets
from fmq.errors import BadOption
from fmq.recovery.layout import SERVER_LOG
from fmq.server.doors import Reach, check_reach, listen_at
from fmq.wire.network import public_address

if TYPE_CHECKING:
    from fmq.metrics import MetricsPage

QUIET_SECONDS = 60.0
LOOK_SECONDS = 1.0
LOG_BYTES_MAX = 1 << 20  # the size of SERVER.log, at most
LET_GO_SECONDS = 10.0  # seconds that another process may take to release the directory
ENDS = (signal.SIGTERM, signal.SIGINT)


def add_to(verbs: Any, common: argparse.ArgumentParser) -> None:
    """Add the verb to the command line."""
    parser = verbs.add_parser(
        "serve",
        parents=[common],
        help="let other processes use a directory, by fmq.connect",
        description=__doc__,
    )
    parser.add_argument("dir", metavar="DIR", help="it is made if it is missing")
    parser.add_argument(
        "--home",
        metavar="HOME",
        help="take over this home, such as s3://bucket/shop; DIR is a cache of it, and clients "
        "find this process by the home's address",
    )
    add_arguments(parser, listens=False)
    parser.add_argument(
        "--on-demand",
        action="store_true",
        help="end after a minute without a client, and at once if another process serves",
    )
    parser.set_defaults(run=run)


def add_arguments(parser: argparse.ArgumentParser, *, listens: bool) -> None:
    """Add what `fmq standby` has, too. With `listens` an address is required."""
    parser.add_argument("--options", metavar="JSON", help="an object with fields of fmq.Options")
    parser.add_argument(
        *(("--listen",) if listens else ("--tcp", "--listen")),
        dest="tcp",
        metavar="HOST:PORT",
        type=lambda text: text.removeprefix("tcp://"),
        required=listens,
        help="listen there, too; beyond loopback only with TLS",
    )
    parser.add_argument(
        "--token-file",
        metavar="FILE",
        help="64 hexadecimal digits that clients over TCP have to know; of mode 600",
    )
    parser.add_argument("--tls-cert", metavar="FILE", help="the server's certificate, in PEM")
    parser.add_argument("--tls-key", metavar="FILE", help="its key, in PEM")
    add_resolve(
        parser, "what became of the transactions that a client of the producer has left undecided"
    )
    parser.add_argument(
        "--http",
        metavar="HOST:PORT",
        help="answer /metrics for Prometheus and /healthz there, such as 127.0.0.1:9464",
    )
    parser.add_argument(
        "--otlp",
        metavar="URL",
        help="send the same metrics to a collector of OpenTelemetry, such as "
        "http://127.0.0.1:4318/v1/metrics; needs the extra otel",
    )
    parser.add_argument(
        "--otlp-every", metavar="SECONDS", type=seconds, default=60.0, help="60 by default"
    )
    parser.add_argument(
        "--otlp-messaging-names",
        action="store_true",
        help="send some of them by OpenTelemetry's names for message systems, too",
    )
    parser.add_argument(
        "--rocketmq",
        metavar="HOST:PORT",
        help="serve clients of RocketMQ there, such as 127.0.0.1:8081; needs the package "
        "fmq-rocketmq",
    )
    parser.add_argument(
        "--rocketmq-options",
        metavar="JSON",
        help='an object with arguments of fmq_rocketmq.serve, such as {"fifo_groups": ["billing"]}',
    )


def run(chosen: argparse.Namespace, output: Output) -> int:
    """Serve until a signal, the end of the engine or, on demand, a minute without clients.

    Listens on the sockets that a supervisor has passed, and tells it when clients are served.
    """
    allow_many_files()
    path = os.path.join(chosen.dir, SERVER_LOG) if chosen.on_demand else None
    with signals_wait(), logs(path):
        return _serve(chosen)


class _Log(logging.StreamHandler[TextIO]):
    """Writes log lines to standard error. If that is SERVER.log, the file is cut at
    LOG_BYTES_MAX.
    """

    def __init__(self, path: str | None) -> None:
        super().__init__(sys.stderr)
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        self._path = path

    def emit(self, record: logging.LogRecord) -> None:
        """Write one log line."""
        super().emit(record)
        if self._path is not None:
            with suppress(OSError):
                cut_log(self._path)


def cut_log(path: str) -> None:
    """Cut a log that is larger than LOG_BYTES_MAX to the whole lines of its last half."""
    if os.stat(path).st_size <= LOG_BYTES_MAX:
        return
    with open(path, "r+b") as file:
        file.seek(-LOG_BYTES_MAX // 2, os.SEEK_END)
        kept = file.read().partition(b"\n")[2]
        file.seek(0)
        file.write(kept)
        file.truncate()


@contextmanager
def logs(path: str | None) -> Iterator[None]:
    """Log with time, level and name. For a process that was started on demand, stderr is the file
    at `path`.
    """
    log = _Log(path)
    logging.getLogger().addHandler(log)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(log)


def _serve(chosen: argparse.Namespace) -> int:
    sockets = passed_sockets()
    timeout = 0.0 if chosen.on_demand else LET_GO_SECONDS
    options, resolve = options_in(chosen.options), databases_in(chosen.resolve)
    opened: Any = partial(fmq.open, chosen.dir, options, timeout=timeout, resolve=resolve)
    try:
        if chosen.home is None:
            engine = opened()
        else:
            engine = _open_home(chosen, options, opened, sockets)
    except fmq.errors.Locked as error:
        if chosen.on_demand:
            return FINE  # another process serves the directory already
        raise error
    return code_of(serve(chosen, engine, sockets))


def _open_home(
    chosen: argparse.Namespace,
    options: fmq.Options | None,
    opened: Callable[..., fmq.Engine],
    sockets: list[socket.socket],
) -> fmq.Engine:
    """Take over the home, and say there where this process will serve."""
    from fmq.engines.startup import disk_of
    from fmq.home.home_addresses import check_address, home_disk

    check_beside(chosen)  # a wrong line must not cost the owner its home
    where = None
    if chosen.tcp is not None:
        sockets.append(bound(chosen.tcp))
        where = public_address([sockets[-1].getsockname()])
    check_reach(reach_of(chosen, sockets))  # for the same reason
    disk = disk_of(options or fmq.Options())
    return opened(disk=home_disk(disk, check_address(chosen.home), SystemClock(), address=where))


def reach_of(chosen: argparse.Namespace, sockets: Sequence[socket.socket]) -> Reach:
    """Return at which `sockets` the command line lets clients in, and how."""
    secrets = chosen.token_file, chosen.tls_cert, chosen.tls_key
    return Reach(None, *secrets, sockets=tuple(sockets))


def bound(text: str) -> socket.socket:
    """Return a socket that has taken an address, and does not listen yet. Raises BadOption."""
    return listen_at(text, now=False)


def code_of(failure: fmq.EngineFailed | None) -> int:
    """Return the exit code for how serving ended, and say why."""
    if failure is None:
        return FINE
    note(str(failure))
    return ERROR


def serve(
    chosen: argparse.Namespace, engine: fmq.Engine, sockets: list[socket.socket]
) -> fmq.EngineFailed | None:
    """Serve until a signal or, on demand, a minute without clients. Close the engine, and return
    the error if it has failed.

    An engine with a home listens at `sockets` alone: one of them has taken the address.
    """
    end = partial(os.kill, os.getpid(), signal.SIGTERM)
    with engine:
        with ExitStack() as pages, ExitStack() as serving:
            with _given_up(engine, chosen.home):
                server = serving.enter_context(
                    engine.serve(
                        tcp=chosen.tcp if chosen.home is None else None,
                        token_file=chosen.token_file,
                        tls_cert=chosen.tls_cert,
                        tls_key=chosen.tls_key,
                        sockets=sockets,
                        on_stop=end,
                    )
                )
                if chosen.on_demand:
                    server.gives_way(end)
                page, door = open_beside(engine, chosen, pages)
            notify("READY=1")
            if not chosen.on_demand:
                _say_where(chosen, server, page, door)
            while not is_told_to_end():
                if server.has_ended:
                    break
                if chosen.on_demand and server.quiet_seconds() > QUIET_SECONDS:
                    break
            notify("STOPPING=1")
        return _failure_of(engine)


@contextmanager
def _given_up(engine: fmq.Engine, home: str | None) -> Iterator[None]:
    """Let others have the home at once if the block fails, and say so. Raises BadOption then."""
    try:
        yield
    except (BadOption, fmq.errors.NotAllowed, OSError) as error:
        if home is None:
            raise
        from fmq.engines.home_moves import give_up  # imported here: few have a home

        give_up(engine)
        why = re.sub(r" Nothing (was|is) \w+\.+", "", str(error))  # something was
        raise BadOption(
            f"{without_secrets(home)}: was taken over, and then this process could not serve it, "
            f"so it is free again, with all its messages. {why.removesuffix('.')}. Mend that, and "
            "start this command again."
        ) from error


def _failure_of(engine: fmq.Engine) -> fmq.EngineFailed | None:
    if engine.stats().failure is not None:
        try:
            engine.sync()
        except fmq.EngineFailed as error:
            return error
    return None


def _say_where(
    chosen: argparse.Namespace, server: fmq.Serving, page: MetricsPage | None, door: Any
) -> None:
    """Print a note that clients are served, and where."""
    path = chosen.dir
    if chosen.home is not None:
        path = without_secrets(chosen.home)
    where = ", ".join(map(_address, server.addresses))
    if door is not None:
        where += f", RocketMQ's clients at {door.address}"
    if page is not None:
        where += f", metrics at {page.url}"
    if chosen.otlp is not None:
        where += f", metrics sent to {chosen.otlp}"
    note(
        f"serving {path}: fmq.connect({path!r}) in other programs, or {where}. Process "
        f"{os.getpid()}; Ctrl-C ends it cleanly, and `fmq top {chosen.dir}` shows what it does."
    )


def _address(address: object) -> str:
    """Return the address of a socket: a path, or host and port."""
    return f"{address[0]}:{address[1]}" if isinstance(address, tuple) else f"{address}"


def is_told_to_end(seconds: float = LOOK_SECONDS) -> bool:
    """Wait a short time for a signal that ends the process. Return whether one came."""
    found = signal.sigtimedwait(ENDS, seconds)
    # If the process was stopped for longer than the timeout, Python returns uninitialised memory.
    return found is not None and found.si_signo in ENDS


@contextmanager
def signals_wait() -> Iterator[None]:
    """Hold back the signals that end the process until they are asked for, so that they interrupt
    nothing.

    Threads that are started meanwhile leave them to this one.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def allow_many_files() -> None:
    """Raise the limit of open files as far as the machine allows: each connection needs one."""
    import resource  # imported here, because Windows has no such module

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def options_in(text: str | None) -> fmq.Options | None:
    """Return the options of an argument of --options. Raises BadOption."""
    if text is None:
        return None
    try:
        return fmq.Options(**json.loads(text))
    except (TypeError, JSONDecodeError) as error:
        raise BadOption(
            f"--options {text}: {error}. Nothing was opened. It is an object with fields of "
            """fmq.Options, such as '{"queues": 4}'."""
        ) from error
