"""The options of a write: what is refused, and with which words."""

from __future__ import annotations

import pytest

import fmq
from fmq.spark.write_options import parse_write

REFUSED: dict[str, tuple[dict[str, str], str]] = {
    "an unknown one": ({"topics": "x"}, "there is no option 'topics' of a write"),
    "no place": ({"path": ""}, "needs the option 'path' or else 'address'"),
    "two places": ({"address": "tcp://h:1"}, "needs the option 'path' or else 'address'"),
    "a mark without a value": ({"mark": "m"}, "belong together"),
    "a value without a mark": ({"markValue": "1"}, "belong together"),
    "no number": ({"partBytes": "x"}, "must be a whole number from 1 on"),
    "a number too small": ({"partBytes": "0"}, "must be a whole number from 1 on"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_wrong_option_is_refused(case: str) -> None:
    options, said = REFUSED[case]
    with pytest.raises(fmq.errors.BadOption, match=said) as caught:
        parse_write({"path": "shop", **options}, streaming=False)
    assert "Nothing was written" in str(caught.value)


def test_a_stream_has_its_own_numbers() -> None:
    """And Spark adds options of its own."""
    given = {"PATH": "shop", "checkpointLocation": "c", "queryName": "q"}
    assert parse_write(given, streaming=True).where == "shop"
    with pytest.raises(fmq.errors.BadOption, match="a stream has no markValue"):
        parse_write({**given, "mark": "m", "markValue": "1"}, streaming=True)


def test_names_are_in_any_case() -> None:
    options = parse_write(
        {"Address": "tcp://h:1", "tokenfile": "t", "PARTBYTES": "7"}, streaming=False
    )
    assert options[:3] == ("tcp://h:1", True, "t")
    assert options.part_bytes == 7
