"""The choice of topics of a table, which lies in its properties, so that no delivery with another
choice leaves a hole in it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from fmq.lake.lake_errors import OtherTable

TOPICS = "fmq.topics"
"""The property, or the name in a footer of Parquet. A table of all topics has none."""


def topics_said(topics: Iterable[str] | None) -> str | None:
    """Return what a table says of a choice of topics."""
    return None if topics is None else json.dumps(sorted({*topics}), ensure_ascii=False)


def topics_in(said: str | None) -> frozenset[str] | None:
    """Return the choice that a table says."""
    return None if said is None else frozenset(json.loads(said))


def check_topics(where: str, wanted: str | None, said: str | None) -> None:
    """Raise OtherTable if what a delivery wants is not what the table says."""
    if wanted != said:
        raise OtherTable(
            f"{where}: the table has {_named(said)}, and {_named(wanted)} were to be delivered. "
            "Its position is one for all, so it would lack what is before. Nothing was written; "
            f"deliver others into another table. A table of your own says it by the property "
            f"{TOPICS}."
        )


def _named(said: str | None) -> str:
    return "all topics" if said is None else f"the topics {said}"
