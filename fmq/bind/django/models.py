"""The marker table as a model for reading: fmq inserts its rows, and a purge removes them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django.db import models

from fmq.bind.marker import TABLE


class Moment(models.Field):
    """A time column of `fmq ddl`: seconds since 1970 in SQLite, timestamptz in PostgreSQL."""

    def db_type(self, connection: Any) -> str:
        return "integer" if connection.vendor == "sqlite" else "timestamptz"

    def get_db_prep_value(self, value: Any, connection: Any, prepared: bool = False) -> Any:
        if isinstance(value, datetime) and connection.vendor == "sqlite":
            return int(value.timestamp())
        return value

    def from_db_value(self, value: Any, expression: object, connection: object) -> Any:
        return datetime.fromtimestamp(value, UTC) if isinstance(value, int) else value


class Marker(models.Model):
    """A row of the marker table: a bound transaction, or a producer that binds this database."""

    pk = models.CompositePrimaryKey("store_id", "tx_id")
    store_id = models.CharField(max_length=36)
    tx_id = models.CharField(max_length=256)
    state = models.CharField(max_length=1)
    deadline = Moment()
    created_at = Moment()
    checked_at = Moment(null=True)

    class Meta:
        # Django cannot make this table, for lack of its types, and must not flush it: only these
        # rows show what became of transactions.
        managed = False
        db_table = TABLE

    def __str__(self) -> str:
        return str(self.tx_id)
