"""A query whose Python starts too late begins again, and not for ever."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from tools.spark_streams import STARTS_MAX, ended

LATE = "[STREAM_FAILED] java.io.IOException: Python worker failed to connect back."


class JavaQuery:
    """Stands for Java's side of a query, which ends with the first error of `errors`, if any."""

    def __init__(self, errors: list[str]) -> None:
        self._errors = errors

    def awaitTermination(self) -> None:  # noqa: N802
        if self._errors:
            raise StreamingQueryException(self._errors.pop(0))


def started(errors: list[str]) -> StreamingQuery:
    side: Any = JavaQuery(errors)
    return StreamingQuery(side)


def test_a_query_begins_again_while_python_is_late() -> None:
    errors = [LATE] * (STARTS_MAX - 1)
    ended(lambda: started(errors))
    assert errors == []


@pytest.mark.parametrize(
    ("errors", "unused"), [([LATE] * (STARTS_MAX + 1), 1), (["of the user", "unused"], 1)]
)
def test_an_error_of_spark_is_raised_if_python_is_late_each_time_or_if_it_is_another(
    errors: list[str], unused: int
) -> None:
    with pytest.raises(StreamingQueryException, match=errors[0].split()[-1]):
        ended(lambda: started(errors))
    assert len(errors) == unused
