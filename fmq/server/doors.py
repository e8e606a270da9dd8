"""The sockets on which an engine process listens, and what a client has to show at each."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from fmq.errors import BadOption, NotAllowed
from fmq.wire.network import (
    BACKLOG,
    Address,
    is_local,
    listen_on,
    parse_address,
    read_token,
    server_context,
)
from fmq.wire.processes import FileId, is_socket_of, listen_in

if TYPE_CHECKING:
    from ssl import SSLContext


CONNECTIONS_MAX = 4096


class Door(NamedTuple):
    """A socket that listens, with the token or the certificate that it needs."""

    socket: socket.socket
    own_file: FileId | None = None
    """The file of a socket that was made here: it is removed at the end."""
    token: bytes | None = None
    """What a client has to know; None where the machine says which user it is."""
    context: SSLContext | None = None
    """How both speak TLS; None without."""


class Reach(NamedTuple):
    """The further addresses of an engine process, besides the socket of its directory."""

    tcp: str | None = None
    token_file: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    sockets: tuple[socket.socket, ...] = ()
    """Those that listen already, such as systemd's."""
    on_stop: Callable[[], None] | None = None
    """Ends the process, for `fmq stop`; None if that may not."""
    connections_max: int = CONNECTIONS_MAX
    """How many connections there may be at once."""


def open_doors(path: str, reach: Reach) -> list[Door]:
    """Return all doors to the directory `path`. Raises BadOption or NotAllowed.

    If the socket of the directory listens already, it is used.
    """
    token, context = check_reach(reach)
    given = [*reach.sockets]
    made: list[socket.socket] = []
    try:
        if reach.tcp is not None:
            made.append(listen_at(reach.tcp))
        doors = []
        for each in (*given, *made):
            each.setblocking(False)
            if each.family == socket.AF_UNIX:
                doors.append(Door(each))
                continue
            _check(each, token, context)
            try:
                each.listen(BACKLOG)  # here, as the thread that serves has nobody to tell
            except OSError as error:
                raise _cannot_listen(Address(*each.getsockname()[:2]), error) from error
            doors.append(Door(each, token=token, context=context))
        if not any(is_socket_of(path, each) for each in given):
            doors.append(Door(*listen_in(path)))
    except BaseException:
        close_all(made)
        raise
    return doors


def check_reach(reach: Reach) -> tuple[bytes | None, SSLContext | None]:
    """Return the token and the certificate of all doors. Raises BadOption or NotAllowed, as
    `open_doors` would, and opens nothing.
    """
    context = token = None
    if reach.tls_cert is not None:
        context = server_context(reach.tls_cert, reach.tls_key)
    if reach.token_file is not None:
        token = read_token(reach.token_file)
    for each in reach.sockets:
        if each.family != socket.AF_UNIX:
            _check(each, token, context)
    return token, context


def listen_at(text: str, *, now: bool = True) -> socket.socket:
    """Do as `listen_on` does at the address that `text` names. Raises BadOption."""
    address = parse_address(text)
    try:
        return listen_on(address, now=now)
    except OSError as error:
        raise _cannot_listen(address, error) from error


def _cannot_listen(address: Address, error: OSError) -> BadOption:
    return BadOption(
        f"{address}: this process cannot listen there ({error.strerror}). Nothing was changed."
    )


def _check(made: socket.socket, token: bytes | None, context: SSLContext | None) -> None:
    """Raise NotAllowed if a socket can be reached over a network without a token."""
    where = made.getsockname()[0]
    if token is None:
        raise NotAllowed(
            f"{where}: over TCP the machine does not say which user a client is, so a token is "
            "needed. Nothing was changed. Give a token_file."
        )
    if context is None and not is_local(made):
        raise NotAllowed(
            f"{where}: other machines can reach this address, so messages and the token would "
            "cross the network in clear. Nothing was changed. Give tls_cert and tls_key, or listen "
            "on 127.0.0.1."
        )


def close_all(sockets: Iterable[socket.socket]) -> None:
    """Close sockets."""
    for each in sockets:
        each.close()
