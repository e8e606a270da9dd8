"""The door to other machines: addresses, the token that clients show, and TLS.

A token file holds 32 random bytes as 64 hexadecimal digits, and only its owner may read it.
"""

from __future__ import annotations

import os
import socket
import stat
import sys
from collections.abc import Iterable
from contextlib import suppress
from ipaddress import ip_address
from typing import TYPE_CHECKING, NamedTuple

from fmq.errors import BadOption, NotAllowed

if TYPE_CHECKING:
    from ssl import SSLContext

TOKEN_BYTES = 32
CONNECT_SECONDS = 10.0
BACKLOG = 1024
EVERYWHERE = {"0.0.0.0", "::"}
# A peer that has lost its power is noticed after 30 + 3 * 10 seconds.
KEEP_ALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}


class Address(NamedTuple):
    """A host and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_address(text: str) -> Address:
    """Return the address that `text` names, as in "db.local:7707" or "[::1]:7707".

    Raises BadOption.
    """
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not (port.isascii() and port.isdigit()) or int(port) > 0xFFFF:
        raise BadOption(f"{text!r}: an address is HOST:PORT, such as 127.0.0.1:7707")
    return Address(host, int(port))


def listen_on(address: Address, *, now: bool = True) -> socket.socket:
    """Return a socket that listens on `address`; raise OSError. Without `now` the address is only
    taken, and clients are refused until the socket listens.
    """
    family, *_, where = socket.getaddrinfo(
        *address, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(where)
        if now:
            made.listen(BACKLOG)
    except BaseException:
        made.close()
        raise
    return made


def is_local(made: socket.socket) -> bool:
    """Return whether only this machine can reach a socket that listens."""
    if made.family == socket.AF_UNIX:
        return True
    return ip_address(made.getsockname()[0].partition("%")[0]).is_loopback


def address_of(made: socket.socket) -> str | None:
    """Return the address and port at the other end; None for a socket of this machine's files."""
    if made.family == socket.AF_UNIX:
        return None
    try:
        host, port, *_ = made.getpeername()
    except OSError:  # the connection has ended already
        return None
    return str(Address(host, port))


def public_address(addresses: Iterable[object]) -> str | None:
    """Return the address for clients on other machines, of those at which a process listens; None
    if it listens at none. A process that listens everywhere is found by its machine's name.
    """
    for each in addresses:
        if isinstance(each, tuple):
            host, port, *_ = each
            return f"tcp://{Address(socket.getfqdn() if host in EVERYWHERE else host, port)}"
    return None


def connect_over(address: Address) -> socket.socket:
    """Return a socket that is connected to `address`; raise OSError."""
    made = socket.create_connection(address, CONNECT_SECONDS)
    made.settimeout(None)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    keep_alive(made)
    return made


def keep_alive(made: socket.socket) -> None:
    """Let the machine notice a peer that has gone without closing the connection."""
    with suppress(OSError):  # the peer has closed the connection already
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in KEEP_ALIVE.items():
            if hasattr(socket, name):
                made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def read_token(path: str) -> bytes:
    """Return the token in a file that only its owner may read.

    Raises NotAllowed if others may read it, BadOption if it holds none.
    """
    try:
        file = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        try:
            found = os.fstat(file)
            text = os.read(file, 1024)
        finally:
            os.close(file)
    except OSError as error:
        raise BadOption(
            f"{path}: the token cannot be read ({error.strerror}). Nothing was changed. Make one: "
            f"(umask 077; openssl rand -hex {TOKEN_BYTES} > {path})"
        ) from error
    # Modes say nothing on Windows: there the folder of a user is closed to others.
    if sys.platform != "win32" and found.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise NotAllowed(
            f"{path}: others than its owner may read or write this file, so it is no secret. "
            f"Nothing was changed. Make another token with mode 600: "
            f"(umask 077; openssl rand -hex {TOKEN_BYTES} > {path})"
        )
    try:
        token = bytes.fromhex(text.decode("ascii"))
    except ValueError:
        token = b""
    if len(token) != TOKEN_BYTES:
        raise BadOption(
            f"{path}: a token file holds {2 * TOKEN_BYTES} hexadecimal digits, and nothing else. "
            f"Nothing was changed. Make one: (umask 077; openssl rand -hex {TOKEN_BYTES} > {path})"
        )
    return token


def server_context(certificate: str, key: str | None) -> SSLContext:
    """Return the settings of a server for TLS 1.2 or later. Raises BadOption."""
    import ssl  # imported here: slow to import, and few programs need it

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key)
    except OSError as error:
        raise BadOption(
            f"{certificate}: the certificate or its key cannot be used ({error}). Nothing was "
            "changed. Both are files in PEM."
        ) from error
    return context


def client_context(authorities: str) -> SSLContext:
    """Return the TLS settings of a client that accepts a server only if one of `authorities` has
    certified it.

    Raises BadOption.
    """
    import ssl  # imported here: slow to import, and few programs need it

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_verify_locations(authorities)
    except OSError as error:
        raise BadOption(
            f"{authorities}: no certificates can be read there ({error}). Nothing was changed. It "
            "is a file in PEM, with the certificate of the server or of its authority."
        ) from error
    return context
