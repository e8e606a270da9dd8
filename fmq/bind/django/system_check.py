"""The system check fmq.W001: a database with markers may forget what it has committed.

`manage.py check --database default` asks, and so does `manage.py migrate`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

from django.core import checks
from django.db import Error, connections

from fmq.bind.bind_errors import BindError
from fmq.bind.dialects import POSTGRES, SQLITE, sqlite_path
from fmq.bind.marker import TABLE

W001 = "fmq.W001"
DIALECTS = {"sqlite": SQLITE, "postgresql": POSTGRES}


def register() -> None:
    """Register the check with Django."""
    checks.register(check_durability, checks.Tags.database)


def check_durability(
    app_configs: Any, databases: Iterable[str] | None = None, **_: Any
) -> list[checks.CheckMessage]:
    """Warn of each alias with markers whose database may lose commits when the power fails."""
    found: list[checks.CheckMessage] = []
    for alias in databases or ():
        if loss := _loss(connections[alias]):
            hint = "See docs/databases/django.md."
            found.append(checks.Warning(loss, hint=hint, obj=f"DATABASES[{alias!r}]", id=W001))
    return found


def _loss(connection: Any) -> str:
    """Return why the database may lose commits; "" if it has no markers or keeps its commits."""
    dialect = DIALECTS.get(connection.vendor)
    if dialect is None:
        return ""
    with suppress(BindError, Error), connection.cursor() as cursor:

        def execute(statement: str) -> Iterator[Any]:
            cursor.execute(statement)
            return iter(cursor.fetchall())

        if dialect is SQLITE:
            sqlite_path(execute)  # one in memory, as tests have, promises nothing
        if TABLE in connection.introspection.table_names(cursor):
            return dialect.begin(execute, str(connection.settings_dict["NAME"])).loss
    return ""
