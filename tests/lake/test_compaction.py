"""Small files of a table are merged, and what others do meanwhile is neither undone nor doubled."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import fmq
import fmq.lake
import fmq.table
from fmq.lake import LakeDelivery, table_at
from fmq.lake.lake_delivery import schema_for
from tests.lake.conftest import add_to
from tests.lake.meddled_catalog import meddled
from tests.lake.tables import EXACT, as_rows, content, differences, iceberg, rewrite, url_of


@pytest.fixture(params=["delta", "iceberg"])
def to(request: pytest.FixtureRequest) -> Any:
    """A format that can be compacted."""
    pytest.importorskip({"delta": "deltalake", "iceberg": "pyiceberg"}[request.param])
    return request.param


def once(path: Any, url: str, to: Any, **how: Any) -> fmq.lake.LakeStats:
    return fmq.lake.deliver(str(path), url, to=to, once=True, **how)


def files(url: str, to: str) -> int:
    if to == "delta":
        from deltalake import DeltaTable

        return len(DeltaTable(url).file_uris())
    with iceberg(url) as table:
        return len([*table.scan().plan_files()])


def test_small_files_are_merged_while_a_delivery_runs(shop: Path, tmp_path: Path, to: Any) -> None:
    url = url_of(tmp_path, to)
    stats = once(shop, url, to, rows=20, compact_after=4)
    assert stats.commits > 10 and stats.merged > 4 and files(url, to) < 8
    assert differences(shop, url, to) == EXACT
    assert fmq.lake.audit(str(shop), url, to=to).ok


def test_deliveries_of_one_commit_each_compact_too(shop: Path, tmp_path: Path, to: Any) -> None:
    """As those that a cron job starts. The files that are there decide, not a count in memory."""
    url = url_of(tmp_path, to)
    once(shop, url, to, compact_after=3)
    merged = []
    for _ in range(4):
        add_to(shop, 1)
        merged.append(once(shop, url, to, compact_after=3).merged)
    assert merged == [0, 3, 0, 3]
    assert differences(shop, url, to) == EXACT


def test_fewer_small_files_stay_and_by_default_all_do(shop: Path, tmp_path: Path, to: Any) -> None:
    url = url_of(tmp_path, to)
    commits = once(shop, url, to, rows=20).commits
    assert files(url, to) == commits > 10
    add_to(shop, 1)
    assert once(shop, url, to, compact_after=commits + 2).merged == 0
    assert files(url, to) == commits + 1


def test_a_delivery_between_the_look_and_the_commit_of_a_compaction_stays(
    shop: Path, tmp_path: Path, to: Any
) -> None:
    url = url_of(tmp_path, to)
    once(shop, url, to, rows=20)
    add_to(shop, 5)

    def other() -> None:
        once(shop, url, to)

    assert compacted(url, to, other) == 0
    assert compacted(url, to) > 10
    assert differences(shop, url, to) == EXACT


def test_of_two_compactions_one_does_nothing(shop: Path, tmp_path: Path, to: Any) -> None:
    url = url_of(tmp_path, to)
    once(shop, url, to, rows=20)
    others = []
    assert compacted(url, to, lambda: others.append(compacted(url, to))) == 0
    assert others[0] > 10
    assert differences(shop, url, to) == EXACT


def test_rows_that_another_program_deletes_meanwhile_stay_deleted(
    shop: Path, tmp_path: Path, to: Any
) -> None:
    url = url_of(tmp_path, to)
    once(shop, url, to, rows=20)

    def without_emails() -> None:
        rewrite(url, to, lambda rows: rows.filter(pa.compute.field("topic") != "emails"))

    assert compacted(url, to, without_emails) == 0
    assert {*content(url, to)["topic"].to_pylist()} == {"orders", "late"}


def compacted(url: str, to: str, meanwhile: Callable[[], object] = lambda: None) -> int:
    """Compact the table, and call `meanwhile` between its look and its commit."""
    schema = schema_for("messages")
    if to == "delta":
        # The handle is at the version that it has found, and `meanwhile` makes a newer one.
        with closing(table_at(url, to, schema)) as table:
            table.positions([])
            meanwhile()
            assert isinstance(table, fmq.lake.CanCompact)
            return table.compact(2)
    with meddled(url, schema, meanwhile) as table:
        return table.compact(2)


def test_a_compaction_that_undoes_a_commit_is_found(shop: Path, tmp_path: Path, to: Any) -> None:
    """The planted bug: all rows are written again, on top of what came meanwhile."""
    url = url_of(tmp_path, to)
    once(shop, url, to, rows=20)
    rows = content(url, to)
    add_to(shop, 5)
    once(shop, url, to)
    rewrite(url, to, lambda _: rows)
    assert differences(shop, url, to)["lost"] > 0
    assert not fmq.lake.audit(str(shop), url, to=to).ok


def test_files_of_others_and_rows_of_a_fleet_are_merged_with_the_rest(
    tmp_path: Path, to: Any
) -> None:
    paths = [tmp_path / f"web{number}" for number in range(3)]
    for path in paths:
        add_to(path, 5)
    url = url_of(tmp_path, to)
    stats = once(tmp_path / "web*", url, to, rows=10, compact_after=2)
    assert stats.merged > 2
    assert differences(paths, url, to) == EXACT
    rows = as_rows(content(url, to))
    assert len({row["store"] for row in rows}) == 3


def test_a_folder_of_parquet_files_is_not_compacted(shop: Path, tmp_path: Path) -> None:
    """A reader of the folder would see rows twice, or not at all."""
    url = url_of(tmp_path, "parquet")
    with pytest.raises(fmq.BadOption, match="roll_after"):
        once(shop, url, "parquet", compact_after=2)
    assert once(shop, url, "parquet", rows=20).merged == 0
    with pytest.raises(fmq.BadOption, match="compact_after"):
        LakeDelivery(str(shop), table_at(url, "parquet", schema_for("messages")), compact_after=-1)
