"""The first frames of a connection: a client says who it is, and the engine process what it
serves.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from fmq.arguments.options import Options
from fmq.basics.own_process import here
from fmq.errors import FmqError
from fmq.remote.wires import Wire
from fmq.wire.frames import FAILED, HELLO_BYTES_MAX, VERSION, BadFrame, Frame, Op, Splitter, frame
from fmq.wire.values import decode_values, encode_values


class Hello(NamedTuple):
    """The answer of an engine process to a HELLO."""

    version: int
    store: str
    incarnation: bytes
    path: str
    options: Options
    append_bytes_max: int


class Refused(ConnectionRefusedError):
    """The engine process accepts no more connections for now, and has sent its reason."""


def say_hello(wire: Wire, client: bytes, token: bytes | None) -> tuple[Frame, Splitter]:
    """Send a HELLO, and return the answer. Raises OSError or BadFrame."""
    splitter = Splitter(HELLO_BYTES_MAX)
    hello = encode_values([VERSION, client, token, *here()[:2]])
    with suppress(BrokenPipeError, ConnectionResetError):
        # A process that refuses has closed the connection. Its answer can still be read.
        wire.send(frame(Op.HELLO, 0, hello))
    found: list[Frame] = []
    while not found:
        data = wire.receive()
        if not data:
            raise ConnectionResetError("the engine process closed the connection")
        found = splitter.feed(data)
    return found[0], splitter


def is_served(
    dial: Callable[[], Wire], stranger: bytes, token: bytes | None, incarnation: bytes
) -> bool:
    """Return whether the engine process answers over another connection.

    The question is asked as another client, with the id `stranger`.
    """
    try:
        wire = dial()
    except (OSError, FmqError):
        return False
    try:
        answer, _ = say_hello(wire, stranger, token)
        # A process that refuses, because it has too many connections, is alive, too.
        return bool(answer.flags & FAILED) or (decode_values(answer.payload)[2] == incarnation)
    except (OSError, BadFrame, TypeError):
        return False
    finally:
        wire.close()
