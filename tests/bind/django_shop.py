"""The shop as a Django project: settings for this process, a model, an alias for each database."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import django
from django.conf import settings
from django.db import connections, models

from tests.bind.databases import Database, Sqlite

SQLITE = {
    "ENGINE": "django.db.backends.sqlite3",
    "NAME": "",
    "OPTIONS": {"init_command": "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL"},
}
POSTGRES = {
    "ENGINE": "django.db.backends.postgresql",
    "NAME": "postgres",
    "USER": "postgres",
    "HOST": "",
}
MEMORY = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}

# The same with the backends that outboxes need.
WITH_OUTBOX = {
    "outbox_sqlite": {**SQLITE, "ENGINE": "fmq.bind.django.sqlite3"},
    "outbox_postgres": {**POSTGRES, "ENGINE": "fmq.bind.django.postgresql"},
    "outbox_memory": {**MEMORY, "ENGINE": "fmq.bind.django.sqlite3"},
}

settings.configure(
    DATABASES={"default": SQLITE, "postgres": POSTGRES, "memory": MEMORY, **WITH_OUTBOX},
    INSTALLED_APPS=["fmq.bind.django"],
    USE_TZ=True,
    TIME_ZONE="Europe/Berlin",
)
django.setup()


class Order(models.Model):
    """An order of the shop."""

    name = models.CharField(max_length=99, primary_key=True)

    class Meta:
        app_label = "shop"
        db_table = "orders"


def point_at(database: Database, *, outbox: bool = False) -> str:
    """Make the alias lead to this database, and return its name.

    With `outbox` its ENGINE is that of fmq.bind.django.
    """
    if outbox:
        alias = "outbox_sqlite" if isinstance(database, Sqlite) else "outbox_postgres"
    else:
        alias = "default" if isinstance(database, Sqlite) else "postgres"
    leave(alias)
    here: dict[str, Any] = connections[alias].settings_dict
    if isinstance(database, Sqlite):
        here["NAME"] = str(Path(database.folder) / "shop.db")
    else:
        here["HOST"] = database.address.rpartition("host=")[2]
    return alias


def leave(alias: str) -> None:
    """Close this thread's connection, so that the next test makes a new one."""
    connections[alias].close()
