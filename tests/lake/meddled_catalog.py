"""A catalog of Iceberg in which something happens between the look and the commit of a change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

from fmq.lake.iceberg_table import IcebergTable

PENDING: list[Callable[[], object]] = []


class MeddledCatalog(SqlCatalog):
    """It calls what is pending before the next commit."""

    def commit_table(self, *args: Any, **kwargs: Any) -> Any:
        if PENDING:
            PENDING.pop()()
        return super().commit_table(*args, **kwargs)


@contextmanager
def meddled(url: str, schema: pa.Schema, meanwhile: Callable[[], object]) -> Iterator[IcebergTable]:
    """Open the table at `url`, and call `meanwhile` before its next commit."""
    where, _, name = url.rpartition("/")
    options = {
        "py-catalog-impl": f"{__name__}.MeddledCatalog",
        "uri": f"sqlite:///{where}/catalog.db",
        "warehouse": f"file://{where}",
    }
    with closing(IcebergTable(f"catalog://fmq/{name}", schema, options)) as table:
        PENDING.append(meanwhile)
        yield table
    PENDING.clear()
