"""Django's backend of SQLite, whose commits also commit the messages of outboxes."""

from django.db.backends.sqlite3 import base

from fmq.bind.django.connection import OutboxConnection


class DatabaseWrapper(OutboxConnection, base.DatabaseWrapper):
    """A connection to SQLite. Django looks for a class with this name."""
