"""The fields of bodies, by the stored codec of their topic: the column `value` of a table."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import fmq
from fmq.table import read


@dataclass
class Order:
    id: int
    total: float = 0.5
    is_paid: bool = False
    note: str | None = None
    more: Any = None


@dataclass
class OrderOfText:
    id: str
    place: str = ""


def values(path: Path, **how: Any) -> list[Any]:
    found = read(str(path), topic="orders", columns=["value"], **how).read_all()
    return list(found["value"].to_pylist())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with fmq.open(tmp_path / "shop") as engine:
        orders = engine.topic("orders", codec=fmq.codecs.dataclass(Order))
        orders.send(Order(1, 2.5, True, "x", [1, None]), key="k")
        engine.send("other", b'{"id":9}')
        with engine.transaction() as tx:
            orders.send_in(tx, Order(2))
    return tmp_path / "shop"


def test_each_field_is_a_column_of_its_type(path: Path) -> None:
    """A field of several kinds is a text. The raw body and other columns stand beside."""
    found = read(str(path), topic="orders", columns=["value", "key", "body"]).read_all()
    types = {"id": pa.int64(), "total": pa.float64(), "is_paid": pa.bool_()}
    types |= {"note": pa.string(), "more": pa.string()}
    assert found.schema.field("value").type == pa.struct(types)
    first, second = found.to_pylist()
    nothing = {"note": None, "more": None}
    expected = {"id": 1, "total": 2.5, "is_paid": True, "note": "x", "more": "[1, null]"}
    assert (first["value"], first["key"], first["body"][:7]) == (expected, "k", b'{"id":1')
    assert second["value"] == {"id": 2, "total": 0.5, "is_paid": False} | nothing
    assert values(path) == [expected, second["value"]]


@pytest.mark.parametrize("body", [b"", b"\xff", b"[1]", b"null", b'{"id":NaN}', b"[" * 99_999])
def test_a_body_that_is_no_object_has_no_value(path: Path, body: bytes) -> None:
    with fmq.open(path) as engine:
        engine.send("orders", body)
    assert [each is None for each in values(path)] == [False, False, True]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b'{"id":"1"}', "id"),
        (b'{"id":1.0}', "id"),
        (b'{"id":true}', "id"),
        (b'{"id":9223372036854775808}', "id"),
        (b'{"total":"1"}', "total"),
        (b'{"total":1%s}' % (b"0" * 400), "total"),
        (b'{"is_paid":1}', "is_paid"),
        (b'{"note":"\\ud800"}', "note"),
    ],
)
def test_a_field_of_another_kind_is_null(path: Path, body: bytes, field: str) -> None:
    """What has no place in the type of the column is nowhere but in the body."""
    with fmq.open(path) as engine:
        engine.send("orders", body)
    assert values(path)[-1][field] is None


def test_bodies_of_an_earlier_version_are_read_as_the_newest_fields_say(path: Path) -> None:
    with fmq.open(path) as engine:
        codec = fmq.codecs.dataclass(OrderOfText, version=2, old={1: lambda body: OrderOfText("?")})
        engine.topic("orders", codec=codec).send(OrderOfText("three", "x"))
    expected = {"id": "1", "place": None}, {"id": "2", "place": None}, {"id": "three", "place": "x"}
    assert values(path) == [*expected]


def test_the_codecs_of_several_directories_are_put_together(path: Path) -> None:
    """Where the kinds differ, the field is a text. A copy of a store brings its codecs, too."""
    other = path.with_name("other")
    with fmq.open(other) as engine:
        engine.topic("orders", codec=fmq.codecs.dataclass(OrderOfText)).send(OrderOfText("three"))
    shutil.copytree(path, path.with_name("copy"))
    several = [str(each) for each in (path, path.with_name("copy"), other)]
    found = read(several, topic="orders", columns=["value"]).read_all()["value"].to_pylist()
    assert [each["id"] for each in found] == ["1", "2", "three"]


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({}, "no topic is named"),
        ({"topic": "other"}, "no codec that says its fields"),
        ({"topic": "bare"}, "no codec that says its fields"),
        ({"topic": "orders", "view": "acks"}, "no column of acks 'value'"),
    ],
)
def test_a_column_without_known_fields_is_refused(
    path: Path, how: dict[str, Any], says: str
) -> None:
    with fmq.open(path) as engine:
        engine.topic("bare", codec=fmq.codecs.json()).send([1])
    with pytest.raises(fmq.errors.BadOption, match=says):
        read(str(path), columns=["value"], **how)


def test_the_value_of_a_mark_is_a_column_of_its_own(path: Path) -> None:
    """The view of marks has a column of this name, and needs neither topic nor codec."""
    with fmq.open(path) as engine, engine.transaction() as tx:
        tx.mark("job", 7)
    found = read(str(path), view="marks", columns=["name", "value"]).read_all()
    assert found.to_pylist() == [{"name": "job", "value": 7}]
