"""Waits for queries of Spark whose source is in Python.

Spark gives the Python of such a source ten seconds to start, and no setting gives a busy machine
more. One that was late has read nothing, so its query begins again, some times.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

LATE = "Python worker failed to connect back"
STARTS_MAX = 10
"""So often a query is started; if it was late each time, something else than the load is wrong."""


def ended(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """Start a query, and return it when it has ended by itself."""
    return _in_time(start, StreamingQuery.awaitTermination)


def caught_up(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """Start a query, and return it when it has read all that was there."""
    return _in_time(start, StreamingQuery.processAllAvailable)


def _in_time(
    start: Callable[[], StreamingQuery], wait: Callable[[StreamingQuery], Any]
) -> StreamingQuery:
    """Raises what Spark says if Python was late each time."""
    for left in reversed(range(STARTS_MAX)):
        query = start()
        try:
            wait(query)
        except StreamingQueryException as error:
            if LATE not in str(error) or not left:
                raise
        except BaseException:
            query.stop()
            raise
        else:
            break
    return query
