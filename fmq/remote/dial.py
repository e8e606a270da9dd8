"""`fmq.connect`: from a path or an address to a client of the process that serves the directory."""

from __future__ import annotations

import errno
import json
import logging
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

from fmq.arguments.names import check_seconds
from fmq.arguments.options import Options
from fmq.arguments.path import ADDRESS, PathLike, check_local, text_of, without_secrets
from fmq.arguments.stored_options import all_named, new_by, told
from fmq.basics.clock import Clock, SystemClock, sleep
from fmq.bind.databases import check_resolve
from fmq.errors import FmqError, Locked
from fmq.errors.storage_errors import no_directory, no_parent
from fmq.posix import RealDisk
from fmq.posix.denied import denied
from fmq.recovery.layout import LOCK, SERVER_LOG, SOCKET
from fmq.remote.lazy_door import LazyDoor
from fmq.remote.link import FOLLOWER_SILENCE_SECONDS
from fmq.remote.link_door import TCP, UNIX, LinkDoor
from fmq.remote.remote_engine import RemoteEngine
from fmq.remote.wires import Wire, silence_of
from fmq.wire.network import client_context, connect_over, parse_address, read_token
from fmq.wire.processes import (
    absolute,
    connect_to,
    impatient,
    is_directory,
    make_directory,
    owns,
    python,
    receive_at_once,
    send_at_once,
    split,
    start,
    starting,
)

if TYPE_CHECKING:
    from ssl import SSLContext

# With larger reads, each call would map memory and unmap it again.
RECEIVE_BYTES = 1 << 16
# How long a process that was started may take until it serves.
START_SECONDS = 10.0
LOOK_SECONDS = 0.005
MAY_START = FileNotFoundError, ConnectionRefusedError
NO_PATH = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.EROFS}
logger = logging.getLogger("fmq.remote")


class SocketWire:
    """Implements Wire with a socket."""

    def __init__(self, made: socket.socket) -> None:
        self._socket = made
        self._rest = b""  # bytes that `send_now` could not send
        self.send: Callable[[bytes], None] = made.sendall
        self.receive = partial(made.recv, RECEIVE_BYTES)
        self.forget = made.close
        self.fileno = made.fileno

    def _send_after_rest(self, data: bytes) -> None:
        data, self._rest = self._rest + data, b""
        self.send = self._socket.sendall
        self.send(data)

    def send_now(self, data: bytes) -> bool:
        """Send what can be sent without waiting, and keep the rest. Return whether nothing
        is left.
        """
        if self._rest:
            self._rest += data
            return False
        try:
            sent = send_at_once(self._socket, data)
        except BlockingIOError:
            sent = 0
        self._rest = data[sent:]
        if self._rest:
            self.send = self._send_after_rest
        return not self._rest

    def receive_now(self) -> bytes | None:
        """Return the next bytes; None if none have arrived."""
        try:
            return receive_at_once(self._socket, RECEIVE_BYTES)
        except BlockingIOError:
            return None

    def close(self) -> None:
        """Close the connection. A thread that waits for bytes gets the end of the connection."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


class AddressDialer:
    """Connects to a process that serves a directory at a known address, and starts none."""

    def __init__(self, where: str, context: SSLContext | None, silence: float) -> None:
        """`where` is "unix:" and a path, or "tcp://" and HOST:PORT. Raises BadOption."""
        self._context = context
        self._silence = silence
        self._unix = self._tcp = None
        if where.startswith(UNIX):
            self._unix = split(absolute(where.removeprefix(UNIX)))
        else:
            self._tcp = parse_address(where.removeprefix(TCP))

    def dial(self) -> Wire:
        """Return a new connection. Raises OSError."""
        if self._unix is not None:
            return SocketWire(connect_to(*self._unix, self._silence))
        assert self._tcp is not None
        made = connect_over(self._tcp)
        impatient(made, self._silence)
        if self._context is None:
            return SocketWire(made)
        from fmq.remote.tls_wire import TlsWire  # imported here, because ssl is slow to import

        return TlsWire(made, self._context, self._tcp.host)


class HomeDialer:
    """Connects to the owner of a home. It asks the home before each connection, and so follows the
    owner through take-overs.
    """

    def __init__(self, home: str, context: SSLContext | None, silence: float) -> None:
        # Imported here: few programs have a home, and all import this module.
        from fmq.home.home_look import find_owner

        self._find = partial(find_owner, home)
        self._how = context, silence

    def dial(self) -> Wire:
        """Return a new connection. Raises OSError, or HomeRefused if there is no such home."""
        where = self._find()
        if where is None:
            raise ConnectionRefusedError("no process has said in the home where it serves")
        return AddressDialer(where, *self._how).dial()


class Dialer:
    """Connects to the process that serves a directory, and starts one if there is none."""

    def __init__(
        self,
        path: str,
        options: Options | None,
        clock: Clock,
        *,
        starts: bool,
        silence: float,
    ) -> None:
        self._path = path
        self._silence = silence
        self._options = options
        self._clock = clock
        self._starts = starts

    def dial(self) -> SocketWire:
        """Return a new connection. Raises OSError, or NotAStore if no directory can be there."""
        try:
            return self._connect()
        except OSError as error:
            self._refuse_path(error)
            if not self._starts or not isinstance(error, MAY_START):
                raise
        try:
            make_directory(self._path)
        except OSError as error:
            self._refuse_path(error, was_made=True)
            raise
        if not owns(self._path):
            raise denied(PermissionError(errno.EACCES, "its user has to serve it"), self._path)
        deadline = self._clock.monotonic() + START_SECONDS

        def wait(seconds: float) -> None:
            if self._clock.monotonic() > deadline:
                raise TimeoutError(f"another process is starting one for {START_SECONDS:g} s")
            sleep(self._clock, seconds)

        with starting(self._path, wait):
            with suppress(OSError):
                return self._connect()
            locked = self.explain()
            if locked is not None:
                # The process that has the lock may serve soon, or end.
                raise ConnectionRefusedError(str(locked))
            return self._start(deadline)

    def _refuse_path(self, error: OSError, *, was_made: bool = False) -> None:
        """Raise NotAStore if no process can ever serve the path, and say whose it is if this user
        may not enter it. `was_made` says that `error` came from making the directory.
        """
        if isinstance(error, PermissionError):
            raise denied(error, f"{self._path}/{SOCKET}") from error
        if error.errno in NO_PATH:
            if not is_directory(split(self._path)[0]):
                raise no_parent(self._path) from error
            if was_made or not isinstance(error, FileNotFoundError):
                raise no_directory(self._path, error) from error

    def _connect(self) -> SocketWire:
        return SocketWire(connect_to(self._path, silence=self._silence))

    def _start(self, deadline: float) -> SocketWire:
        program = python()
        if program is None:
            raise FileNotFoundError("there is no Python here that could start a process")
        arguments = ["serve", self._path, "--on-demand"]
        if self._options is not None:
            arguments += ["--options", json.dumps(_changed(self._options))]
        exit_code = start(self._path, program, arguments)
        while True:
            code = exit_code()
            try:
                return self._connect()
            except OSError as error:
                if code is not None:
                    raise ChildProcessError(
                        f"the process that was started has ended with {code}: see "
                        f"{self._path}/{SERVER_LOG}"
                    ) from error
                if self._clock.monotonic() > deadline:
                    raise
            sleep(self._clock, LOOK_SECONDS)

    def explain(self) -> FmqError | None:
        """Return the error that says which process has the directory open without serving it; None
        if there is none.
        """
        with suppress(OSError, FmqError):
            directory = RealDisk().directory(self._path, make=False)
            try:
                locked = directory.locked_by(LOCK)
            finally:
                directory.close()
            if locked is not None:
                return Locked(self._path, locked.holder, served=False)
        return None


def _changed(options: Options) -> dict[str, object]:
    """Return the options that differ from the defaults."""
    default = asdict(Options())
    return {name: value for name, value in asdict(options).items() if value != default[name]}


def connect(
    path: str | PathLike,
    options: Options | None = None,
    *,
    start: bool = True,
    retry_for: float = 30.0,
    clock: Clock | None = None,
    resolve: Mapping[str, object] | None = None,
    token_file: str | None = None,
    tls_ca: str | None = None,
    lazy: bool = False,
) -> RemoteEngine:
    """Return a client of the process that serves the directory at `path`.

    Any number of processes may connect. If none serves the directory, one is started with
    `options`, unless `start` is False. It ends by itself a minute after the last client. If it
    dies, the next call of any client starts another one, and nothing is lost or done twice. A call
    raises NotServed or OutcomeUnknown after `retry_for` seconds without an answer. This process
    asks the databases of `resolve`, as `fmq.open` does.

    `path` may also be an address: "unix:/run/shop.sock", or "tcp://HOST:PORT" with a `token_file`
    like the server's, and with `tls_ca`, the certificates of authorities to trust, if the server
    speaks TLS. Or it is the address of a home, such as "s3://bucket/shop": then the home says where
    its owner serves, and the client follows it from one machine to the next. In both cases no
    process is started. With `lazy` the client connects at its first call, so a
    module may make it while it is imported.
    """
    if resolve is not None:
        check_resolve(resolve)
    where = text_of(path)
    if not where.startswith((UNIX, TCP)) and not _is_home(where):
        check_local(where)
    dial = partial(
        _door, where, options, start, retry_for, clock or SystemClock(), resolve, token_file, tls_ca
    )
    return RemoteEngine(LazyDoor(where, dial) if lazy else dial())


def _is_home(where: str) -> bool:
    if not ADDRESS.match(where):
        return False
    from fmq.home.home_addresses import is_home  # imported here: few programs have a home

    return is_home(where)


def _door(
    where: str,
    options: Options | None,
    starts: bool,
    retry_for: float,
    clock: Clock,
    resolve: Mapping[str, object] | None,
    token_file: str | None,
    tls_ca: str | None,
) -> LinkDoor:
    """Connect, and return the door of the connection."""
    retry_for = check_seconds("retry_for", retry_for)
    what = RealDisk.random, clock, retry_for
    in_home, shown = _is_home(where), where
    if in_home:
        shown = without_secrets(where)
    if in_home or where.startswith((UNIX, TCP)):
        context = None if tls_ca is None else client_context(tls_ca)
        token = None if token_file is None else read_token(token_file)
        silence = silence_of(retry_for)
        if in_home:
            silence = min(silence, FOLLOWER_SILENCE_SECONDS)
        reached = where, context, silence
        dial = (HomeDialer(*reached) if in_home else AddressDialer(*reached)).dial
        door = LinkDoor(shown, dial, *what, token=token, follows=in_home)
    else:
        where = absolute(where)
        dialer = Dialer(where, options, clock, starts=starts, silence=silence_of(retry_for))
        door = LinkDoor(where, dialer.dial, *what, dialer.explain)
    if options is not None:
        try:
            _agree(where, options, door)
        except BaseException:
            door.close()
            raise
    if resolve:
        try:
            door.resolve(resolve)
        except BaseException:
            door.close()
            raise
    return door


def _agree(path: str, wanted: Options, door: LinkDoor) -> None:
    """Store the options that this call names and for which the directory has no value. Log the
    options that differ from the stored value, or from the value with which the process that serves
    was started.
    """
    named = all_named(wanted)
    if not named:
        return
    if own := new_by(wanted, {}):
        door.change("configure", own, [], True)
    found = {each.name: each for each in door.look("settings")}
    others = {
        name: (value, found[name].value)
        for name, value in named.items()
        if (each := found[name]).source == "directory" and not each.waits and each.value != value
    }
    if others:
        logger.warning("%s", told(path, others))
    served = {
        name: each.value
        for name, value in named.items()
        if not (each := found[name]).in_directory and each.value != value
    }
    if served:
        logger.warning("%s: is served with other options than those of this call: %r", path, served)
