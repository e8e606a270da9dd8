"""A delivery of chosen topics, and bodies as a column of their own."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import fmq
import fmq.lake
from fmq.cli.main import main
from tests.lake.conftest import add_to
from tests.lake.tables import content, url_of

ORDER = pa.schema([("id", pa.int64()), ("note", pa.string())])
TOLD = pa.struct([("size", pa.int64()), ("topic", pa.string())])


@dataclass
class Order:
    id: int
    note: str | None = None


def once(path: Any, url: str, to: Any, **how: Any) -> fmq.lake.LakeStats:
    return fmq.lake.deliver(str(path), url, to=to, once=True, **how)


def measured(messages: pa.RecordBatch) -> pa.Array:
    """A function of a program: it may make any type."""
    columns = messages.select(["topic", "body"]).to_pydict()
    pairs = zip(columns["topic"], columns["body"], strict=True)
    return pa.array([{"size": len(body), "topic": topic} for topic, body in pairs], TOLD)


def by_offset(url: str, to: str, topic: str = "typed") -> list[Any]:
    rows = [row for row in content(url, to).to_pylist() if row["topic"] == topic]
    return [row["value"] for row in sorted(rows, key=lambda row: row["offset"])]


@pytest.fixture
def typed(shop: Path) -> Path:
    """The path of a directory with a topic that has a codec stored, and others."""
    with fmq.open(shop, fmq.Options(segment_bytes=16 << 10)) as engine:
        topic = engine.topic("typed", codec=fmq.codecs.dataclass(Order))
        topic.send(Order(1, "first"))
        topic.send(Order(2))
        engine.send("typed", b"no json")
    return shop


# --- a choice of topics --------------------------------------------------------------------------


def test_a_table_has_the_chosen_topics_alone(shop: Path, tmp_path: Path, to: Any) -> None:
    url, chosen = url_of(tmp_path, to), ["emails", "late"]
    stats = once(shop, url, to, topics=chosen, rows=50)
    add_to(shop, 5)
    stats = once(shop, url, to, topics=chosen)
    assert 0 < stats.rows < 20
    seen = fmq.lake.audit(str(shop), url, to=to)
    rows = content(url, to)
    assert seen.ok and seen.rows == rows.num_rows
    assert {*rows["topic"].to_pylist()} == {*chosen}
    wanted = fmq.table.read(str(shop), topic=chosen).read_all()
    assert sorted(rows["position"].to_pylist()) == sorted(wanted["position"].to_pylist())


@pytest.mark.parametrize(
    ("first", "then"), [(["late"], None), (None, ["late"]), (["late"], ["orders"])]
)
def test_another_choice_is_refused(
    shop: Path, tmp_path: Path, to: Any, first: Any, then: Any
) -> None:
    """Its position is beyond messages that the table would lack."""
    url = url_of(tmp_path, to)
    once(shop, url, to, topics=first)
    add_to(shop, 1)
    before = content(url, to).num_rows
    with pytest.raises(fmq.lake.OtherTable, match=r"fmq\.topics"):
        once(shop, url, to, topics=then)
    assert content(url, to).num_rows == before


def test_rows_of_a_topic_that_was_not_chosen_are_found(shop: Path, tmp_path: Path, to: Any) -> None:
    from tests.lake.tables import rewrite

    url = url_of(tmp_path, to)
    once(shop, url, to, topics=["orders"])
    other = fmq.table.read(str(shop), topic="late", columns=content(url, to).column_names)
    late = other.read_all()
    rewrite(url, to, lambda rows: pa.concat_tables([rows, late.slice(0, 1).cast(rows.schema)]))
    kinds = [finding.kind for finding in fmq.lake.audit(str(shop), url, to=to).findings]
    assert kinds == ["unknown"]


def test_views_without_topics_have_no_choice(shop: Path, tmp_path: Path) -> None:
    with pytest.raises(fmq.BadOption, match="no topic"):
        once(shop, url_of(tmp_path, "parquet"), "parquet", topics=["a"], view="transactions")


# --- bodies as values ----------------------------------------------------------------------------


@pytest.mark.parametrize("codec", ["stored", ORDER])
def test_json_becomes_fields(typed: Path, tmp_path: Path, to: Any, codec: Any) -> None:
    """A body that is no JSON has none, and the column `body` has it as it was sent."""
    url = url_of(tmp_path, to)
    once(typed, url, to, topics=["typed"], codec=codec)
    first, second = {"id": 1, "note": "first"}, {"id": 2, "note": None}
    assert by_offset(url, to) == [first, second, None]
    with fmq.open(typed) as engine:
        engine.topic("typed", codec=fmq.codecs.dataclass(Order)).send(Order(3))
    once(typed, url, to, topics=["typed"], codec=codec)
    assert by_offset(url, to)[-1] == {"id": 3, "note": None}
    seen = fmq.lake.audit(str(typed), url, to=to)
    assert (seen.ok, seen.rows) == (True, 4)


def test_a_function_makes_values_of_any_type(typed: Path, tmp_path: Path, to: Any) -> None:
    """It gets the bodies also if they are no column of the table."""
    url, columns = url_of(tmp_path, to), ["topic", "offset", "position", "store"]
    stats = once(typed, url, to, codec=measured, columns=columns, rows=40)
    assert stats.commits > 3
    assert content(url, to).column_names == [*columns, "value"]
    sizes = [row["size"] for row in by_offset(url, to)]
    assert sizes[2] == len(b"no json")
    assert {row["topic"] for row in by_offset(url, to, "late")} == {"late"}


def test_a_compacted_table_has_its_values(typed: Path, tmp_path: Path, to: Any) -> None:
    if to == "parquet":
        pytest.skip("it is not compacted")
    url = url_of(tmp_path, to)
    assert once(typed, url, to, codec=measured, rows=20, compact_after=3).merged > 2
    assert None not in by_offset(url, to)


def test_a_function_that_fails_ends_the_delivery_and_says_which(
    typed: Path, tmp_path: Path, to: Any
) -> None:
    def strict(messages: pa.RecordBatch) -> pa.Array:
        found = [json.loads(body)["id"] for body in messages["body"].to_pylist()]
        return pa.array(found, pa.int64())

    def untyped(messages: pa.RecordBatch) -> pa.Array:
        return pa.array([None for _ in messages["body"]])

    def short(messages: pa.RecordBatch) -> pa.Array:
        return pa.array([], pa.int64())

    def fickle(messages: pa.RecordBatch) -> pa.Array:
        return pa.nulls(len(messages), pa.int64() if len(messages) else pa.string())

    for number, wrong in enumerate((strict, untyped, short, fickle)):
        url = url_of(tmp_path / str(number), to)
        with pytest.raises(fmq.lake.NotDecoded, match=wrong.__name__):
            once(typed, url, to, codec=wrong)
        if to != "parquet" and wrong is not untyped:
            assert content(url, to).num_rows == 0


@pytest.mark.parametrize(
    ("how", "match"),
    [
        ({"codec": "stored"}, "no topic is named"),
        ({"codec": "stored", "topics": ["late"]}, "no codec"),
        ({"codec": pa.schema([("at", pa.timestamp("us"))])}, "struct of texts"),
        ({"codec": "avro"}, "a function of messages"),
        ({"codec": ORDER, "view": "transactions"}, "have no body"),
    ],
)
def test_codecs_that_make_no_sense_are_refused(
    typed: Path, tmp_path: Path, how: dict[str, Any], match: str
) -> None:
    with pytest.raises(fmq.BadOption, match=match):
        once(typed, url_of(tmp_path, "parquet"), "parquet", **how)
    assert not (tmp_path / "lake").exists()


def test_a_table_with_values_is_not_delivered_to_without_a_codec(
    typed: Path, tmp_path: Path, to: Any
) -> None:
    """New rows would have none, and nobody would be told."""
    url = url_of(tmp_path, to)
    once(typed, url, to, codec=ORDER)
    add_to(typed, 1)
    with pytest.raises(fmq.lake.OtherTable, match="codec"):
        once(typed, url, to)


def test_the_command_names_a_function_or_what_is_stored(
    typed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """The function may lie in the present directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop_lake_types.py").write_text(
        "import pyarrow as pa, pyarrow.compute as pc\n"
        "ORDER = pa.schema([('id', pa.int64())])\n"
        "def sizes(rows): return pc.binary_length(rows['body'])\n"
    )
    words = ["deliver", str(typed), "--to", "parquet", "--once", "--topics", "typed", "--codec"]
    for name, wanted in (
        ("stored", {"id": 1, "note": "first"}),
        ("shop_lake_types:ORDER", {"id": 1}),
        ("shop_lake_types:sizes", len(b'{"id":1,"note":"first"}')),
    ):
        url = str(tmp_path / name)
        assert main([*words[:2], url, *words[2:], name]) == 0
        assert by_offset(url, "parquet")[0] == wanted
    assert main([*words[:2], str(tmp_path / "x"), *words[2:], "shop_lake_types:none"]) != 0
    assert "no such function" in capsys.readouterr().err
