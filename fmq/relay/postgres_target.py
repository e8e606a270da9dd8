"""A relay into PostgreSQL: each message is a row, and a batch of them with its place one commit.

The table `fmq_relayed` has the messages, in the order of `id`. The table `fmq_relay` has for each
relay how far it is, and which of its processes counts. `create_tables` makes both. A reader sees
all messages of a transaction or none, as one commit inserts them.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from fmq.basics.message import Message
from fmq.relay.relay_errors import MessageRefused, RelayError, RelayTakenOver, Unsure
from fmq.relay.target import RelayBatch, RelayPlace, fmq_id

PLACES = """
CREATE TABLE IF NOT EXISTS fmq_relay (
    name text PRIMARY KEY,
    epoch bigint NOT NULL,
    place text
);
"""
MESSAGES = """
CREATE TABLE IF NOT EXISTS fmq_relayed (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    fmq_id text NOT NULL,
    topic text NOT NULL,
    queue integer NOT NULL,
    "offset" bigint NOT NULL,
    published timestamptz NOT NULL,
    tx_id text,
    key text,
    tag text,
    headers jsonb,
    message_id text,
    body bytea NOT NULL
);
"""
CLAIM = """
INSERT INTO fmq_relay VALUES (%s, 1) ON CONFLICT (name) DO UPDATE SET epoch = fmq_relay.epoch + 1
RETURNING epoch, place
"""
COPY = """
COPY fmq_relayed (
    fmq_id, topic, queue, "offset", published, tx_id, key, tag, headers, message_id, body
) FROM STDIN
"""

TYPES = (
    *("text", "text", "int4", "int8", "timestamptz"),
    *("text", "text", "text", "jsonb", "text", "bytea"),
)
"""Of the columns of COPY."""


def create_tables(conninfo: str) -> None:
    """Make the tables of relays in a database, if they are not there."""
    with psycopg.connect(conninfo) as connection:
        connection.execute(PLACES + MESSAGES)


class PostgresTarget:
    """The table `fmq_relayed` of a database, for the relay `name`."""

    atomic = True

    def __init__(
        self, conninfo: str, name: str = "relay", *, names: Mapping[str, str] | None = None
    ) -> None:
        """`conninfo` is an address that psycopg takes, such as postgresql://host/shop."""
        self._conninfo = conninfo
        self._name = name
        self._names = dict(names or {})
        self._epoch = 0
        self._connection: psycopg.Connection[Any] | None = None

    def claim(self) -> RelayPlace | None:
        """Increase the epoch, with which each batch is compared. Return the place."""
        self.close()  # rolls back what the last connection was doing
        try:
            self._connection = connection = psycopg.connect(self._conninfo)
            with connection.transaction():
                row = connection.execute(CLAIM, (self._name,)).fetchone()
        except psycopg.OperationalError as error:
            raise Unsure(f"PostgreSQL cannot be asked: {error}") from error
        except psycopg.Error as error:
            raise _unusable(error) from error
        assert row is not None, "it returns a row"
        self._epoch, place = row
        return None if place is None else RelayPlace.of_text(place)

    def deliver(self, batch: RelayBatch) -> None:
        """Insert the messages, and keep the place, in one transaction."""
        connection = self._connection
        assert connection is not None, "it was claimed"
        try:
            with connection.transaction():
                self._check_epoch(connection)
                self._insert(connection, batch)
                connection.execute(
                    "UPDATE fmq_relay SET place = %s WHERE name = %s",
                    (batch.place.text(), self._name),
                )
        except psycopg.DataError as error:
            self._blame(batch, error)
        except psycopg.OperationalError as error:
            raise Unsure(f"PostgreSQL gave no answer: {error}") from error
        except psycopg.Error as error:
            raise _unusable(error) from error

    def _check_epoch(self, connection: psycopg.Connection[Any]) -> None:
        """Lock the row of the relay until the commit.

        Raises RelayTakenOver if it was claimed again.
        """
        ask = "SELECT epoch FROM fmq_relay WHERE name = %s FOR UPDATE"
        row = connection.execute(ask, (self._name,)).fetchone()
        if row != (self._epoch,):
            raise RelayTakenOver(
                f"the relay {self._name!r} was claimed by another process, which copies now. "
                "Nothing of the last batch of this one is there."
            )

    def _blame(self, batch: RelayBatch, error: psycopg.DataError) -> None:
        """Raise MessageRefused for the first message that the table refuses."""
        assert self._connection is not None, "it was claimed"
        for message in batch.messages:
            try:
                with self._connection.transaction(force_rollback=True):
                    self._insert(self._connection, batch._replace(messages=[message]))
            except psycopg.DataError as refusal:
                raise MessageRefused(message, str(refusal)) from error
        raise error

    def _insert(self, connection: psycopg.Connection[Any], batch: RelayBatch) -> None:
        with connection.cursor() as cursor, cursor.copy(COPY) as copy:
            copy.set_types([*TYPES])
            for message in batch.messages:
                copy.write_row(_row_of(message, batch.place.store, self._names))

    def status(self) -> RelayPlace | None:
        """Return the place that is stored; None if there is none, or no relay of this name."""
        with psycopg.connect(self._conninfo) as connection:
            ask = "SELECT place FROM fmq_relay WHERE name = %s"
            row = connection.execute(ask, (self._name,)).fetchone()
        return None if row is None or row[0] is None else RelayPlace.of_text(row[0])

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            with suppress(psycopg.Error):
                self._connection.close()
            self._connection = None


def _unusable(error: psycopg.Error) -> RelayError:
    text = " ".join(str(error).split())
    return RelayError(
        f"PostgreSQL refuses what the relay asks: {text}. Nothing was copied. If tables are "
        "missing, `fmq relay --create` or create_tables makes them."
    )


def _row_of(message: Message, store: str, names: Mapping[str, str]) -> tuple[object, ...]:
    origin = message.origin
    assert origin is not None, "it was read"
    time: datetime = origin.time
    headers = Jsonb(message.headers) if message.headers else None
    return (
        fmq_id(message, store),
        *(names.get(origin.topic, origin.topic), origin.queue, message.offset, time, origin.tx_id),
        *(message.key, message.tag, headers, message.message_id, message.body),
    )
