"""A table has each row of the journals once, whatever runs beside a delivery or ends it."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import fmq
import fmq.lake
import fmq.table
from fmq.lake import LakeBatch, LakeDelivery, TableMoved, table_at
from fmq.lake.lake_delivery import schema_for
from tests.lake.conftest import SMALL, add_to
from tests.lake.tables import (
    EXACT,
    MeddledTable,
    content,
    deliver_meddled,
    differences,
    url_of,
)


def once(path: Any, url: str, to: Any, **how: Any) -> fmq.lake.LakeStats:
    return fmq.lake.deliver(path, url, to=to, once=True, **how)


def test_a_delivery_goes_on_where_the_table_is(shop: Path, tmp_path: Path, to: str) -> None:
    """Each run is a new one that knows nothing of those before it."""
    url, told = url_of(tmp_path, to), list[fmq.lake.LakeCommit]()
    first = once(str(shop), url, to, rows=50, progress=told.append)
    assert first.commits == len(told) > 5
    assert sum(commit.rows for commit in told) == first.rows
    assert told[0].behind == first.bytes
    assert told[-1].behind == told[-1].bytes
    assert once(str(shop), url, to).commits == 0
    add_to(shop, 10)
    assert once(str(shop), url, to).commits == 1
    assert differences(shop, url, to) == EXACT


def test_rows_come_in_the_order_of_the_journal(shop: Path, tmp_path: Path) -> None:
    url = url_of(tmp_path, "parquet")
    once(str(shop), url, "parquet", rows=50)
    columns = schema_for("messages").names
    assert content(url, "parquet") == fmq.table.read(str(shop), columns=columns).read_all()


@pytest.mark.parametrize("new", [True, False])
def test_of_two_loops_one_is_refused_and_looks_again(
    shop: Path, tmp_path: Path, to: str, new: bool
) -> None:
    """The other loop delivers everything between the look and the commit of this one."""
    url = url_of(tmp_path, to)
    if not new:
        once(str(shop), url, to)
        add_to(shop, 10)
    delivery = deliver_meddled(shop, url, to, lambda: (once(str(shop), url, to, rows=30), None)[1])
    stats = delivery.stats()
    assert (stats.refused, stats.commits) == (1, 0)
    assert differences(shop, url, to) == EXACT


def test_of_two_loops_that_commit_in_turn_both_deliver(shop: Path, tmp_path: Path, to: str) -> None:
    """The other loop commits one batch of three each time, so the position is never the one that
    was expected.
    """
    url, others = url_of(tmp_path, to), list[fmq.lake.LakeCommit | None]()
    delivery: LakeDelivery

    def stop_after_it(commit: fmq.lake.LakeCommit) -> None:
        others.append(commit)
        delivery.stop()

    def other() -> None:
        nonlocal delivery
        if len(others) % 3 == 0:
            with closing(table_at(url, to, schema_for("messages"))) as table:
                delivery = LakeDelivery(str(shop), table, rows=30, progress=stop_after_it)
                delivery.run()
        else:
            others.append(None)

    stats = deliver_meddled(shop, url, to, other, rows=40).stats()
    assert stats.refused >= 1
    assert stats.commits >= 1
    assert differences(shop, url, to) == EXACT


def test_commits_of_other_writers_between_disturb_nothing(shop: Path, tmp_path: Path) -> None:
    """Delta: foreign rows, compaction, a checkpoint and a vacuum, between each look and commit."""
    deltalake = pytest.importorskip("deltalake")
    url = url_of(tmp_path, "delta")
    once(str(shop), url, "delta", rows=40)
    foreign = content(url, "delta").slice(0, 1).set_column(0, "topic", pa.array(["foreign"]))

    def meddle() -> None:
        deltalake.write_deltalake(url, foreign, mode="append")
        table = deltalake.DeltaTable(url)
        table.optimize.compact()
        table.create_checkpoint()
        table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
        table.cleanup_metadata()

    add_to(shop, 10)
    commits = deliver_meddled(shop, url, "delta", meddle, rows=15).stats().commits
    assert commits > 2
    table = deltalake.DeltaTable(url)
    table.delete("topic = 'foreign'")
    assert differences(shop, url, "delta") == EXACT


def test_a_foreign_append_to_an_iceberg_table_costs_another_look(
    shop: Path, tmp_path: Path
) -> None:
    """The table has lost the property that forbids retries: the next look sets it again."""
    pytest.importorskip("pyiceberg")
    from pyiceberg.catalog.sql import SqlCatalog

    url = url_of(tmp_path, "iceberg")
    once(str(shop), url, "iceberg", rows=40)
    foreign = content(url, "iceberg").slice(0, 1).set_column(0, "topic", pa.array(["foreign"]))
    where, _, name = url.rpartition("/")
    times: list[int] = []

    def meddle() -> None:
        if len(times) < 3:
            times.append(1)
            with closing(SqlCatalog("fmq", uri=f"sqlite:///{where}/catalog.db")) as catalog:
                table = catalog.load_table(name)
                table.append(foreign.cast(table.schema().as_arrow()))
                with table.transaction() as change:
                    change.set_properties({"commit.retry.num-retries": "4"})

    add_to(shop, 10)
    stats = deliver_meddled(shop, url, "iceberg", meddle).stats()
    assert (stats.refused, stats.commits) == (3, 1)
    with closing(SqlCatalog("fmq", uri=f"sqlite:///{where}/catalog.db")) as catalog:
        catalog.load_table(name).delete("topic == 'foreign'")
    assert differences(shop, url, "iceberg") == EXACT


def test_a_fleet_is_one_table(tmp_path: Path, to: str) -> None:
    """A directory that appears later joins, and so does one that had been delivered alone."""
    paths = [tmp_path / f"web{number}" for number in range(3)]
    url = url_of(tmp_path, to)
    add_to(paths[0], 10)
    once(str(paths[0]), url, to, rows=30)
    add_to(paths[1], 20)
    stats = once(str(tmp_path / "web*"), url, to, rows=30)
    assert stats.commits >= 3
    add_to(paths[2], 5)
    once(str(tmp_path / "web*"), url, to)
    assert differences(paths, url, to) == EXACT


def test_each_journal_of_a_fleet_is_delivered_when_one_fills_a_batch(
    tmp_path: Path, to: str
) -> None:
    """With `once` the end is when no journal has more, and not when that of the last batch has."""
    paths = [tmp_path / f"web{number}" for number in range(3)]
    for path in paths:
        add_to(path, 5)
    url = url_of(tmp_path, to)
    once(str(tmp_path / "web*"), url, to, rows=10)
    assert differences(paths, url, to) == EXACT


# --- journals that are not what they were --------------------------------------------------------


class Recorder:
    """A table that says where it is, and remembers what it was asked."""

    def __init__(self, position: int) -> None:
        self.position = position
        self.appended: list[tuple[fmq.table.ReadRange, ...]] = []
        self.looks = 0
        self.after_look: Any = lambda looks: None

    def positions(self, stores: Iterable[str]) -> dict[str, int]:
        self.looks += 1
        self.after_look(self.looks)
        return dict.fromkeys(stores, self.position)

    def append(self, batch: LakeBatch) -> None:
        self.appended.append(batch.ranges)
        self.position = batch.ranges[-1].end

    def close(self) -> None: ...


def test_an_older_copy_is_refused_and_nothing_is_written(
    shop: Path, tmp_path: Path, to: str
) -> None:
    url = url_of(tmp_path, to)
    shutil.copytree(shop, tmp_path / "older")
    add_to(shop, 10)
    once(str(shop), url, to)
    before = content(url, to)
    with pytest.raises(fmq.table.PositionBeyond):
        once(str(tmp_path / "older"), url, to)
    assert content(url, to) == before


def test_a_journal_whose_end_went_back_is_waited_for(shop: Path) -> None:
    """An engine that was killed may show less until it is open again. Nothing is written until the
    journal has reached the position, and then only what lies beyond it.
    """
    end = fmq.table.read(str(shop)).end
    table = Recorder(end + 1000)
    delivery = LakeDelivery(str(shop), table, every=1e-9)

    def grow(looks: int) -> None:
        if looks == 3:
            assert table.appended == []
            table.position = end
            add_to(shop, 1)
        if looks == 5:
            delivery.stop()

    table.after_look = grow
    delivery.run()
    [[part]] = table.appended
    assert part.first == end


def test_a_journal_whose_end_goes_back_meanwhile_ends_a_delivery_of_all_that_was_there(
    shop: Path, tmp_path: Path
) -> None:
    """With `once`. Nothing is committed again and again until it has its messages back."""
    older, place = tmp_path / "older", fmq.table.read(str(shop)).end
    shutil.copytree(shop, older)
    add_to(shop, 5)

    class GoesBack(Recorder):
        def positions(self, stores: Iterable[str]) -> dict[str, int]:
            known = super().positions(stores)
            return known if self.appended else {}

        def append(self, batch: LakeBatch) -> None:
            if self.looks == 1:
                shutil.rmtree(shop)
                shutil.copytree(older, shop)
                raise TableMoved("lake")
            super().append(batch)
            assert len(self.appended) < 5

    table = GoesBack(0)
    LakeDelivery(str(shop), table, pause=0).run(once=True)
    assert [each.end for [each] in table.appended] == [place]


def test_one_journal_that_is_waited_for_keeps_no_other_back(shop: Path, tmp_path: Path) -> None:
    """With `once` the others are delivered before the error."""
    other = tmp_path / "other"
    add_to(other, 3)
    stuck = fmq.table.read(str(shop)).store

    class OneIsAhead(Recorder):
        def positions(self, stores: Iterable[str]) -> dict[str, int]:
            known = {store: 1 << 40 for store in stores if store == stuck}
            return known | (
                {} if not self.appended else dict.fromkeys({*stores} - {stuck}, self.position)
            )

    table = OneIsAhead(0)
    with pytest.raises(fmq.table.PositionBeyond):
        LakeDelivery([str(shop), str(other)], table).run(once=True)
    [[part]] = table.appended
    assert part.path == str(other)


def test_what_retention_dropped_ends_a_delivery_unless_gaps_are_skipped(
    shop: Path, tmp_path: Path, to: str
) -> None:
    url = url_of(tmp_path, to)
    once(str(shop), url, to)
    before = content(url, to).num_rows
    with fmq.open(shop, replace(SMALL, retain_bytes=30_000), background=False) as engine:
        for _ in range(100):
            engine.send("orders", b"x" * 2000)
        engine.checkpoint()
    with pytest.raises(fmq.table.Outrun, match="bytes"):
        once(str(shop), url, to)
    assert content(url, to).num_rows == before
    stats = once(str(shop), url, to, on_gap="skip")
    left = fmq.table.read(str(shop)).read_all().num_rows
    assert (stats.rows, content(url, to).num_rows) == (left, before + left)
    assert left < 100


# --- commits without rows ------------------------------------------------------------------------


def test_a_few_bytes_without_rows_make_no_commit(shop: Path, tmp_path: Path, to: str) -> None:
    """Acks alone would make a commit at each look."""
    url = url_of(tmp_path, to)
    once(str(shop), url, to)
    with fmq.open(shop, SMALL, background=False) as engine:
        with engine.consumer("orders", group="billing") as consumer:
            for delivery in consumer.poll(limit=5):
                delivery.ack()
        engine.checkpoint()
    reader = fmq.table.read(str(shop))
    assert once(str(shop), url, to).commits == 0
    add_to(shop, 1)
    once(str(shop), url, to)
    assert differences(shop, url, to) == EXACT
    assert reader.end > 0


def test_many_bytes_without_rows_move_the_position(shop: Path, tmp_path: Path, to: str) -> None:
    """Retention could otherwise seem to have dropped something. Two loops agree about these
    commits, too.
    """
    url = url_of(tmp_path, to)
    once(str(shop), url, to)
    with fmq.open(shop, SMALL, background=False) as engine:
        with engine.consumer("orders", group="billing") as consumer:
            for delivery in consumer.poll(limit=5):
                delivery.ack()
        engine.checkpoint()
    stats = deliver_meddled(shop, url, to, lambda: None, empty_bytes=64).stats()
    assert (stats.rows, stats.commits) == (0, 1)
    assert deliver_meddled(shop, url, to, lambda: None, empty_bytes=1).stats().commits == 0
    with fmq.open(shop, SMALL, background=False) as engine:
        with engine.consumer("orders", group="billing") as consumer:
            consumer.poll(limit=1)[0].ack()
        engine.checkpoint()

    def overtake() -> None:
        add_to(shop, 1)
        once(str(shop), url, to)

    assert deliver_meddled(shop, url, to, overtake, empty_bytes=64).stats().refused == 1
    assert differences(shop, url, to) == EXACT


def test_a_view_with_few_rows_goes_on_past_many_messages(shop: Path, tmp_path: Path) -> None:
    """`rows` counts messages: a batch of them without a transaction is committed as empty."""
    path = tmp_path / "many"
    with fmq.open(path, SMALL, background=False) as engine:
        for _ in range(50):
            engine.send("orders", b"x")
        with engine.transaction(tx_id="T") as tx:
            tx.send("orders", b"y")
        engine.checkpoint()
    url = url_of(tmp_path, "parquet")
    stats = once(str(path), url, "parquet", view="transactions", rows=10)
    assert stats.rows == 1
    assert content(url, "parquet")["tx_id"].to_pylist() == ["T"]


# --- what is refused -----------------------------------------------------------------------------


def test_a_table_of_another_view_is_refused(shop: Path, tmp_path: Path, to: str) -> None:
    url = url_of(tmp_path, to)
    once(str(shop), url, to, view="transactions")
    with pytest.raises(fmq.lake.OtherTable, match="has no column topic"):
        once(str(shop), url, to)


def test_a_delta_table_that_forgets_positions_is_refused(shop: Path, tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    url = url_of(tmp_path, "delta")
    once(str(shop), url, "delta")
    name = "delta.setTransactionRetentionDuration"
    deltalake.DeltaTable(url).alter.set_table_properties({name: "interval 1 days"})
    with pytest.raises(fmq.lake.OtherTable, match=name):
        once(str(shop), url, "delta")


@pytest.mark.parametrize(
    ("to", "url", "match"),
    [
        ("parquet", "s3://bucket/x", "cannot be delivered to s3:"),
        ("delta", "ftp://host/x", "cannot be delivered to ftp:"),
        ("delta", "s3:/bucket/x", "cannot be delivered to s3:"),
        ("iceberg", "/tmp/nowhere", "a namespace and a name"),
        ("iceberg", "s3://bucket/a.b", "cannot be delivered to s3:"),
        ("avro", "/tmp/nowhere", "no format 'avro'"),
    ],
)
def test_what_cannot_be_written_is_refused_by_name(
    shop: Path, to: str, url: str, match: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """No folder called `s3:` is made."""
    if to in ("delta", "iceberg"):
        pytest.importorskip({"delta": "deltalake", "iceberg": "pyiceberg"}[to])
    monkeypatch.chdir(tmp_path)
    with pytest.raises(fmq.BadOption, match=match):
        once(str(shop), url, to)
    assert [*tmp_path.iterdir()] == [shop]


@pytest.mark.parametrize(
    ("how", "match"),
    [
        ({"view": "damage"}, "cannot be delivered"),
        ({"columns": ["bdy"]}, "did you mean body"),
        ({"rows": 0}, "must be more than 0"),
        ({"every": 0}, "must be more than 0"),
        ({"on_gap": "jump"}, "no value of on_gap 'jump'"),
        ({"options": {"key": "value"}}, "takes no options"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(
    shop: Path, tmp_path: Path, how: dict[str, Any], match: str
) -> None:
    with pytest.raises(fmq.BadOption, match=match):
        once(str(shop), url_of(tmp_path, "parquet"), "parquet", **how)
    assert [*tmp_path.iterdir()] == [shop]


def test_damage_in_a_journal_is_said_as_such(shop: Path, tmp_path: Path, to: str) -> None:
    """The library that reads the rows would say something of its own."""
    body = b"11" * 20
    (segment,) = [each for each in shop.glob("*.seg") if body in each.read_bytes()]
    segment.write_bytes(segment.read_bytes().replace(body, b"21" + body[2:]))
    url = url_of(tmp_path, to)
    with pytest.raises(fmq.errors.Damaged):
        once(str(shop), url, to)


def test_a_table_that_refuses_for_ever_ends_a_delivery(shop: Path) -> None:

    class Refusing(Recorder):
        def append(self, batch: LakeBatch) -> None:
            raise TableMoved("lake")

    table = Refusing(0)
    with pytest.raises(TableMoved):
        LakeDelivery(str(shop), table, pause=0).run(once=True)
    assert table.looks == 21


def test_few_messages_wait_for_others_so_long_as_was_asked(shop: Path, tmp_path: Path) -> None:
    """What comes meanwhile is in the same commit. A full batch does not wait."""
    url, looks = url_of(tmp_path, "parquet"), list[int]()

    class Table(MeddledTable):
        def positions(self, stores: Iterable[str]) -> dict[str, int]:
            looks.append(10 * len(looks))  # ten seconds for each look
            if len(looks) == 3:
                add_to(shop, 1)
            return super().positions(stores)

    def run(rows: int) -> fmq.lake.LakeStats:
        with closing(Table(table_at(url, "parquet", schema_for("messages")), lambda: None)) as it:
            delivery = LakeDelivery(
                *(str(shop), it),
                rows=rows,
                every=0.001,
                roll_after=25,
                now=lambda: looks[-1],
                progress=lambda _: delivery.stop(),
            )
            delivery.run()
        return delivery.stats()

    assert run(100).commits == len(looks) == 1
    looks.clear()
    assert (run(10_000).commits, looks[-1]) == (1, 30)
    assert differences(shop, url, "parquet") == EXACT
