"""The codecs of fmq: what they write, what they refuse, and which fields they say."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Any, Literal

import pytest

from fmq import TopicCodec
from fmq.basics.message import Message
from fmq.codecs import dataclass as of_dataclass
from fmq.codecs import json, msgspec, pydantic
from fmq.codecs.agreement import check_stored, described, must_store
from fmq.codecs.codec import check_codec, decoded, encoded
from fmq.errors import BadBody, BadOption, CodecDiffers


@dataclass
class Line:
    sku: str
    count: int = 1


@dataclass
class Order:
    id: int
    customer: str
    total: float = 0.0
    is_paid: bool = False
    lines: list[Line] = field(default_factory=list)
    by_day: dict[str, int] = field(default_factory=dict)
    state: Literal["new", "sent"] = "new"
    note: str | None = None
    at: datetime | None = None
    day: date | None = None
    more: Any = None


FIELDS = {
    "id": "integer", "customer": "string", "total": "number", "is_paid": "boolean",
    "lines": "array", "by_day": "object", "state": "string", "note": "null|string",
    "at": "null|string", "day": "null|string", "more": "any",
}  # fmt: skip
FULL = Order(
    1, "ann", 2.5, True, [Line("a"), Line("b", 2)], {"mo": 1}, "sent", "x",
    datetime(2026, 1, 2, 3, tzinfo=UTC), date(2026, 1, 2), {"any": [1, None]},
)  # fmt: skip
MAKES: list[Callable[[type[Order]], Any]] = [of_dataclass, msgspec, pydantic]


def of(body: bytes) -> Message:
    return Message(body)


@pytest.mark.parametrize("make", MAKES, ids=lambda each: each.__name__)
def test_a_dataclass_comes_back_as_it_was_sent(make: Callable[[type[Order]], Any]) -> None:
    codec = make(Order)
    for order in (FULL, Order(1, "ann")):
        assert decoded(codec, of(encoded("t", codec, order))) == order
    assert decoded(codec, of(b'{"id":7,"customer":"bob","new":1}')) == Order(7, "bob")
    assert described(codec) == TopicCodec("json", 1, FIELDS)


@pytest.mark.parametrize("make", MAKES, ids=lambda each: each.__name__)
@pytest.mark.parametrize(
    ("wrong", "path"),
    [
        (Order("1", "ann"), "id"),  # type: ignore[arg-type]
        (Order(1, "ann", lines=[Line("a", "two")]), "lines[0].count"),  # type: ignore[arg-type]
        (Order(1, "ann", note=5), "note"),  # type: ignore[arg-type]
        (Order(1, "ann", state="gone"), "state"),  # type: ignore[arg-type]
    ],
    ids=["id", "lines", "note", "state"],
)
def test_a_wrong_field_is_named(
    make: Callable[[type[Order]], Any], wrong: Order, path: str
) -> None:
    """pydantic writes the path of a list with points, and takes "1" for a number."""
    codec = make(Order)
    if make is pydantic and path == "id":
        wrong = Order("one", "ann")  # type: ignore[arg-type]
    with pytest.raises(BadBody) as refused:
        encoded("orders", codec, wrong)
    found = refused.value.field or ""
    assert found.replace("[0]", ".0") == path.replace("[0]", ".0")
    with pytest.raises(BadBody, match="refuses a value of dict"):
        encoded("orders", codec, {"id": 1, "customer": "ann"})


@pytest.mark.parametrize("make", MAKES, ids=lambda each: each.__name__)
@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"5", b"\xff", b'{"id":1}', b"[" * 100_000])
def test_a_body_that_is_none_is_refused(make: Callable[[type[Order]], Any], body: bytes) -> None:
    with pytest.raises(BadBody, match="cannot decode"):
        decoded(make(Order), of(body))


def test_json_takes_what_json_has_and_names_the_part_that_it_lacks() -> None:
    codec: Any = json()
    value: Any
    for value in (None, 1, "ä", [1, {"a": 2.5}], {}):
        assert decoded(codec, of(encoded("t", codec, value))) == value
    for wrong, path in (({"a": [1, {"b": {1}}]}, "a[1].b"), ([float("nan")], "[0]"), (b"x", "")):
        with pytest.raises(BadBody) as refused:
            encoded("t", codec, wrong)
        assert refused.value.field == path
    wrong_kind: Any = []
    with pytest.raises(BadBody, match="no dict"):
        encoded("t", json(dict), wrong_kind)
    with pytest.raises(BadBody, match="no dict"):
        decoded(json(dict), of(b"[]"))


def test_a_type_that_a_dataclass_cannot_have_is_refused_when_the_codec_is_made() -> None:
    @dataclass
    class Odd:
        a: int
        b: list[complex]

    with pytest.raises(BadOption, match=r"'b\[\]' is .*complex"):
        of_dataclass(Odd)
    with pytest.raises(TypeError, match="is a dataclass"):
        of_dataclass(int)


ONE = TopicCodec("json", 1, {"id": "integer"})
RULES: list[tuple[TopicCodec, TopicCodec | None, bool | None]] = [
    (ONE, None, True),
    (ONE, ONE, False),
    (ONE, TopicCodec("json", 1), True),
    (TopicCodec("json", 1), ONE, False),
    (TopicCodec("json", 1, {"id": "string"}), ONE, None),
    (TopicCodec("json", 1, {"id": "integer", "more": "any"}), ONE, None),
    (TopicCodec("json", 1, {}), ONE, None),
    (TopicCodec("msgpack", 1), ONE, None),
    (TopicCodec("msgpack", 2), ONE, True),
    (ONE, TopicCodec("msgpack", 2), False),
]


@pytest.mark.parametrize(("wanted", "stored", "result"), RULES)
def test_the_version_decides(
    wanted: TopicCodec, stored: TopicCodec | None, result: bool | None
) -> None:
    """True: it is stored. False: the stored one stays. None: it is refused."""
    if result is None:
        with pytest.raises(CodecDiffers, match="'t' has the codec 'json'"):
            must_store("t", wanted, stored)
    else:
        assert must_store("t", wanted, stored) is result


@pytest.mark.parametrize(
    "said",
    [
        *(TopicCodec("", 1), TopicCodec("x" * 300, 1), TopicCodec("json", 0)),
        *(TopicCodec("json", True), TopicCodec("json", 1, {"a" * 40_000: "any"})),
        *(TopicCodec("json", 1 << 40), TopicCodec("json", 1, {str(n): "any" for n in range(1001)})),
    ],
)
def test_what_cannot_be_stored_is_refused(said: TopicCodec) -> None:
    """A client may say anything."""
    with pytest.raises(BadOption):
        check_stored(said)


@pytest.mark.parametrize(
    "given",
    [
        {"name": 5}, {"name": ""}, {"version": 0}, {"version": "1"}, {"old": {0: 5}}, {"old": []},
        {"version": 2, "old": {2: len}}, {"schema": []}, {"encode": 5}, {"decode": None},
    ],
)  # fmt: skip
def test_a_codec_without_a_sound_part_is_refused(given: dict[str, Any]) -> None:
    def call(_: object, given: Any) -> Any:
        return given

    sound: dict[str, Any] = {"name": "n", "encode": call, "decode": call}
    check_codec(type("Sound", (), sound)())
    with pytest.raises(TypeError, match="a codec has"):
        check_codec(type("Unsound", (), sound | given)())


def test_libraries_are_imported_where_they_are_used() -> None:
    """Without one, the error names the extra."""
    program = (
        "import sys, fmq\n"
        "assert not {'msgspec', 'pydantic'} & sys.modules.keys()\n"
        "sys.modules['msgspec'] = sys.modules['pydantic'] = None\n"
        "for make in fmq.codecs.msgspec, fmq.codecs.pydantic:\n"
        "    try: make(dict)\n"
        "    except fmq.ExtraMissing as error: print(error)\n"
    )
    run = [sys.executable, "-c", program]
    said = subprocess.run(run, capture_output=True, text=True, check=True).stdout
    assert "fmq-engine[msgspec]" in said
    assert "fmq-engine[pydantic]" in said
