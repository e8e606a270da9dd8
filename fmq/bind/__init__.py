"""Bind a transaction to the user's own database, so that both commit or neither does."""

from fmq.bind.bind_errors import (
    BindError,
    DurabilityWarning,
    Fenced,
    InDoubt,
    NoMarkerTable,
    NotDurable,
    WrongDatabase,
)
from fmq.bind.checker import checker_of
from fmq.bind.maintenance import create_table, purge
from fmq.bind.marker import ddl

__all__ = [
    "BindError",
    "DurabilityWarning",
    "Fenced",
    "InDoubt",
    "NoMarkerTable",
    "NotDurable",
    "WrongDatabase",
    "checker_of",
    "create_table",
    "ddl",
    "purge",
]
