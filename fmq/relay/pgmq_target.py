"""A relay into queues of pgmq: a batch and its place are one commit of PostgreSQL.

pgmq is a message queue of functions and tables inside a database. Each topic is one of its queues,
and each message is sent by its own function, so its readers find what they expect. Bodies have to
be JSON.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Unpack

import psycopg
from psycopg.types.json import Jsonb

from fmq.basics.message import Message
from fmq.relay.envelope import Envelope, EnvelopeShape
from fmq.relay.postgres_target import PLACES, PostgresTarget
from fmq.relay.relay_errors import MessageRefused, RelayError
from fmq.relay.target import ParkedStub, RelayBatch

SEND = "SELECT FROM pgmq.send_batch(%s::text, %s::text[]::jsonb[], %s::jsonb[])"
GROUP = "x-pgmq-group"
"""The header by which pgmq keeps the order of messages that belong together."""


def create_queues(conninfo: str, names: Iterable[str]) -> None:
    """Make the queues of pgmq with these names, and the table of places, if they are not there.

    Raises RelayError if the database has no pgmq, or refuses a name.
    """
    try:
        with psycopg.connect(conninfo) as connection:
            connection.execute(PLACES)
            for name in names:
                connection.execute("SELECT pgmq.create(%s)", (name,))
    except psycopg.Error as error:
        text = " ".join(str(error).split())
        raise RelayError(
            f"PostgreSQL makes no queues of pgmq: {text}. Nothing was changed. If it has no schema "
            "pgmq, CREATE EXTENSION pgmq makes it."
        ) from error


class PgmqTarget(PostgresTarget):
    """Queues of pgmq in a database, for the relay `name`."""

    def __init__(self, conninfo: str, name: str = "relay", **shape: Unpack[EnvelopeShape]) -> None:
        """`conninfo` is an address that psycopg takes, such as postgresql://host/shop."""
        super().__init__(conninfo, name)
        self._envelope = Envelope(**shape)

    def _insert(self, connection: psycopg.Connection[Any], batch: RelayBatch) -> None:
        queues: dict[str, tuple[list[str], list[Jsonb]]] = {}
        for message, name, headers in self._envelope.headers(batch, attributes="ce_"):
            bodies, said = queues.setdefault(name, ([], []))
            bodies.append(_text_of(message))
            group = {} if message.key is None else {GROUP: message.key}
            said.append(Jsonb(dict(headers) | group))
        for name, columns in queues.items():
            connection.execute(SEND, (name, *columns))


def _text_of(message: Message) -> str:
    """Return the body as text. Whether it is JSON, the database says."""
    try:
        return "null" if isinstance(message, ParkedStub) else message.body.decode()
    except UnicodeDecodeError as error:
        reason = f"queues of pgmq take JSON, and the body is no text: {error}"
        raise MessageRefused(message, reason) from error
