"""Django's backend of PostgreSQL, whose commits also commit the messages of outboxes."""

from django.db.backends.postgresql import base

from fmq.bind.django.connection import OutboxConnection


class DatabaseWrapper(OutboxConnection, base.DatabaseWrapper):
    """A connection to PostgreSQL. Django looks for a class with this name."""
