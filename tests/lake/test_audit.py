"""The audit of a table finds each planted fault, and nothing in a sound table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import fmq
import fmq.lake
import fmq.table
from tests.budget import BUDGET
from tests.lake.conftest import SMALL, add_to
from tests.lake.tables import FORMATS, content, move_position, rewrite, url_of

Change = Callable[[pa.Table], pa.Table]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory, to: Any) -> Path:
    """The path of a directory with 300 messages or so."""
    path = tmp_path_factory.mktemp("audited") / "shop"
    add_to(path, 40)
    return path


@pytest.fixture(scope="module")
def delivered(shop: Path, to: Any) -> tuple[str, pa.Table]:
    """The address and the rows of a table that has all of the shop but what was sent last."""
    url = url_of(shop.parent, to)
    fmq.lake.deliver(str(shop), url, to=to, once=True, rows=100)
    add_to(shop, 3)
    return url, content(url, to)


@pytest.fixture
def lake(delivered: tuple[str, pa.Table], to: Any) -> Iterator[str]:
    """The address of that table, which has its rows again after the test."""
    url, rows = delivered
    yield url
    rewrite(url, to, lambda _: rows)


def found(shop: Path, lake: str, to: Any) -> dict[str, int]:
    """Return how many findings of each kind an audit has, in small parts."""
    seen = fmq.lake.audit(str(shop), lake, to=to, part_rows=100)
    kinds = [finding.kind for finding in seen.findings]
    assert seen.wrong == len(kinds) and seen.ok == (not kinds)
    return {kind: kinds.count(kind) for kind in sorted({*kinds})}


# --- planted faults -----------------------------------------------------------------------------


def where(rows: pa.Table, topic: str, *, number: int = 3) -> int:
    """Return the index of a row of a topic."""
    return int(pc.indices_nonzero(pc.equal(rows.column("topic"), topic))[number].as_py())


def without(rows: pa.Table, *lacking: int) -> pa.Table:
    return rows.take([index for index in range(rows.num_rows) if index not in lacking])


def changed(rows: pa.Table, index: int, **values: Any) -> pa.Table:
    row = {**rows.slice(index, 1).to_pylist()[0], **values}
    return pa.concat_tables([without(rows, index), pa.Table.from_pylist([row], rows.schema)])


def in_transaction(rows: pa.Table) -> list[int]:
    """Return the indices of the rows of one transaction over two topics."""
    tx_id = rows.column("tx_id")[where(rows, "emails")]
    found: list[int] = pc.indices_nonzero(pc.equal(rows.column("tx_id"), tx_id)).to_pylist()
    assert len(found) == 2
    return found


def doubled(rows: pa.Table, index: int) -> pa.Table:
    return pa.concat_tables([rows, rows.slice(index, 1)])


def invented(rows: pa.Table, index: int) -> pa.Table:
    """Add a row that no message is behind, as one of a transaction that was rolled back."""
    return pa.concat_tables([rows, changed(rows, index, offset=9999).slice(rows.num_rows - 1)])


def early(rows: pa.Table, offset: int) -> int:
    """Return the index of the row of one of the first emails, which are compared together."""
    is_it = pc.and_(
        pc.equal(rows.column("topic"), "emails"), pc.equal(rows.column("offset"), offset)
    )
    return int(pc.indices_nonzero(is_it)[0].as_py())


def swapped(rows: pa.Table) -> pa.Table:
    """Let two messages have each other's offsets."""
    made = changed(rows, early(rows, 1), offset=-1)
    made = changed(made, early(made, 2), offset=1)
    return changed(made, early(made, -1), offset=2)


FAULTS: dict[str, tuple[Change, dict[str, int]]] = {
    "row missing": (lambda rows: without(rows, where(rows, "orders")), {"missing": 1}),
    "row doubled": (lambda rows: doubled(rows, where(rows, "orders")), {"doubled": 1}),
    "half a transaction": (lambda rows: without(rows, in_transaction(rows)[0]), {"half": 1}),
    "no row of a transaction": (
        lambda rows: without(rows, *in_transaction(rows)),
        {"missing": 2},
    ),
    "other body": (
        lambda rows: changed(rows, where(rows, "orders"), body=b"other"),
        {"differs": 1},
    ),
    "other header": (
        lambda rows: changed(rows, where(rows, "orders"), headers=[("trace", "50")]),
        {"differs": 1},
    ),
    "other transaction": (
        lambda rows: changed(rows, where(rows, "emails"), tx_id="f" * 32),
        {"differs": 1},
    ),
    "row of nothing": (lambda rows: invented(rows, where(rows, "late")), {"unknown": 1}),
    "other offset": (
        lambda rows: changed(rows, where(rows, "emails"), offset=7777, tx_id=None),
        {"half": 1, "unknown": 1},
    ),
    "other topic": (
        lambda rows: changed(rows, where(rows, "late"), topic="emails", offset=8888),
        {"missing": 1, "unknown": 1},
    ),
    "other key": (lambda rows: changed(rows, where(rows, "orders"), key="k"), {"differs": 1}),
    "other order": (swapped, {"differs": 2}),
    "other position": (
        lambda rows: changed(rows, early(rows, 1), position=1),
        {"differs": 1},
    ),
    "row of another store": (
        lambda rows: changed(rows, where(rows, "orders"), store="f" * 32),
        {"foreign": 1, "missing": 1},
    ),
    "row moved behind the end": (
        lambda rows: changed(rows, where(rows, "late"), position=1 << 40),
        {"beyond": 1, "missing": 1},
    ),
}


SHARES = len(FORMATS) if BUDGET <= 1 else 1


@pytest.mark.parametrize("turn", range(len(FAULTS) // SHARES))
def test_a_planted_fault_is_found(shop: Path, lake: str, to: Any, turn: int) -> None:
    """A format has every third fault, and together they have all. FMQ_BUDGET=2: each has all."""
    fault = [*FAULTS][turn * SHARES + FORMATS.index(to) % SHARES]
    change, kinds = FAULTS[fault]
    rewrite(lake, to, change)
    assert found(shop, lake, to) == kinds, fault


def test_each_fault_has_its_turn() -> None:
    assert len(FAULTS) % len(FORMATS) == 0


def test_a_row_of_a_transaction_that_was_rolled_back_is_found(
    shop: Path, lake: str, to: Any
) -> None:
    decided = fmq.table.read(str(shop), "transactions").read_all().to_pylist()
    back = next(row for row in decided if row["state"] == "rolled back")

    def with_it(rows: pa.Table) -> pa.Table:
        place = {"tx_id": back["tx_id"], "position": back["position"], "offset": 99}
        made = changed(rows, where(rows, "late"), **place)
        return pa.concat_tables([rows, made.slice(rows.num_rows - 1)])

    rewrite(lake, to, with_it)
    assert found(shop, lake, to) == {"unknown": 1}


def test_a_position_that_was_moved_is_found(shop: Path, lake: str, to: Any) -> None:
    whole, part = fmq.table.read(str(shop)), fmq.table.read(str(shop), limit_messages=200)
    delivered = fmq.lake.rows_at(lake, to).position(whole.store)
    assert delivered is not None
    for position, kinds in (
        (whole.end, {"missing"}),
        (whole.end + 64, {"missing", "ahead"}),
        (part.end, {"beyond"}),
    ):
        move_position(lake, to, whole.store, position)
        assert found(shop, lake, to).keys() == kinds
    move_position(lake, to, whole.store, delivered)
    assert found(shop, lake, to) == {}


# --- what is not compared ------------------------------------------------------------------------


def test_rows_of_other_stores_are_counted(tmp_path: Path, shop: Path, lake: str, to: Any) -> None:
    before, second = fmq.lake.audit(str(shop), lake, to=to), tmp_path / "second"
    assert (before.ok, before.older, before.others) == (True, 0, 0)
    add_to(second, 2)
    fmq.lake.deliver(str(second), lake, to=to, once=True)
    rows = fmq.table.read(str(second)).read_all().num_rows
    after = fmq.lake.audit(str(shop), lake, to=to)
    assert (after.ok, after.rows, after.others) == (True, before.rows, rows)
    both = fmq.lake.audit([str(shop), str(second)], lake, to=to)
    assert (both.ok, both.rows, both.others) == (True, before.rows + rows, 0)


def test_columns_that_the_table_lacks_are_not_compared(shop: Path, tmp_path: Path, to: Any) -> None:
    url, columns = url_of(tmp_path, to), ["store", "position", "topic", "queue", "offset", "key"]
    fmq.lake.deliver(str(shop), url, to=to, columns=columns, once=True)
    assert found(shop, url, to) == {}
    rewrite(url, to, lambda rows: without(rows, 5))
    assert found(shop, url, to) == {"missing": 1}


def test_rows_that_retention_has_dropped_are_counted(tmp_path: Path) -> None:
    shop, url = tmp_path / "shop", str(tmp_path / "lake")
    add_to(shop, 100)
    fmq.lake.deliver(str(shop), url, to="parquet", once=True)
    before = fmq.lake.audit(str(shop), url, to="parquet")
    with fmq.open(shop, replace(SMALL, retain_bytes=16 << 10), background=False) as engine:
        for _ in range(5):
            engine.send("orders", bytes(10_000))
    after = fmq.lake.audit(str(shop), url, to="parquet")
    assert after.ok and after.older > 0
    assert after.older + after.rows == before.rows


def test_what_is_no_table_of_messages_is_refused(shop: Path, tmp_path: Path, to: Any) -> None:
    url = url_of(tmp_path, to)
    with pytest.raises(fmq.lake.OtherTable, match="there is no"):
        fmq.lake.audit(str(shop), url, to=to)
    assert not (tmp_path / "lake").exists()
    fmq.lake.deliver(str(shop), url, to=to, columns=["store", "topic", "body"], once=True)
    with pytest.raises(fmq.lake.OtherTable, match="no column"):
        fmq.lake.audit(str(shop), url, to=to)
