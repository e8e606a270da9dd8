"""The marker table as a model, to look at: fmq writes it itself, and purge alone removes rows."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django.db import models

from fmq.bind.marker import TABLE


class Moment(models.Field):
    """A time as `fmq ddl` keeps it: SQLite as seconds since 1970, PostgreSQL as timestamptz."""

    def db_type(self, connection: Any) -> str:
        return "integer" if connection.vendor == "sqlite" else "timestamptz"

    def get_db_prep_value(self, value: Any, connection: Any, prepared: bool = False) -> Any:
        if isinstance(value, datetime) and connection.vendor == "sqlite":
            return int(value.timestamp())
        return value

    def from_db_value(self, value: Any, expression: object, connection: object) -> Any:
        return datetime.fromtimestamp(value, UTC) if isinstance(value, int) else value


class Marker(models.Model):
    """One bound transaction, or one producer that binds this database."""

    pk = models.CompositePrimaryKey("store_id", "tx_id")
    store_id = models.CharField(max_length=36)
    tx_id = models.CharField(max_length=256)
    state = models.CharField(max_length=1)
    deadline = Moment()
    created_at = Moment()
    checked_at = Moment(null=True)

    class Meta:
        # Not Django's to make, which has no such types, nor to flush: what became of
        # transactions is told by these rows alone.
        managed = False
        db_table = TABLE

    def __str__(self) -> str:
        return str(self.tx_id)
