"""The migration that makes the marker table, with the statement that `fmq ddl` prints."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db import migrations, models

from fmq.bind.django.models import Moment
from fmq.bind.marker import DDL, TABLE

DIALECTS = {"sqlite": "sqlite", "postgresql": "postgres"}


def make_table(apps: object, schema_editor: Any) -> None:
    """Make the table unless fmq.bind.create_table, or the user, has made it."""
    connection = schema_editor.connection
    if connection.vendor in DIALECTS and TABLE not in connection.introspection.table_names():
        schema_editor.execute(DDL[DIALECTS[connection.vendor]], params=None)


def drop_table(apps: object, schema_editor: Any) -> None:
    """Drop the marker table."""
    if schema_editor.connection.vendor in DIALECTS:
        schema_editor.execute(f"DROP TABLE {TABLE}")


class Migration(migrations.Migration):
    initial = True
    operations: ClassVar = [
        migrations.CreateModel(
            name="Marker",
            fields=[
                ("pk", models.CompositePrimaryKey("store_id", "tx_id", serialize=False)),
                ("store_id", models.CharField(max_length=36)),
                ("tx_id", models.CharField(max_length=256)),
                ("state", models.CharField(max_length=1)),
                ("deadline", Moment()),
                ("created_at", Moment()),
                ("checked_at", Moment(null=True)),
            ],
            options={"db_table": TABLE, "managed": False},
        ),
        migrations.RunPython(make_table, drop_table),
    ]
