"""Many directories are one table, and copies of one store are read once."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest

import fmq
import fmq.table
from fmq.errors import Damaged, NotAStore
from fmq.table.fleet import PathOrigin, origin_of, see_all
from fmq.table.table_errors import Diverged
from tests.table.counting import CountingDisk

Row = dict[str, Any]
SMALL = fmq.Options(segment_bytes=4096)


def rows(paths: Path | Sequence[Path], view: str = "messages", **how: Any) -> list[Row]:
    several = [paths] if isinstance(paths, Path) else paths
    found: list[Row] = fmq.table.read([str(path) for path in several], view, **how).read_all()
    return found.to_pylist()  # type: ignore[attr-defined, no-any-return]


def bodies(paths: Path | Sequence[Path], **how: Any) -> list[bytes]:
    return [row["body"] for row in rows(paths, **how)]


def write(path: Path, first: int = 0, count: int = 40, **more: Any) -> None:
    """`count` messages that say which they are; some fill a segment."""
    with fmq.open(path, fmq.Options(segment_bytes=4096, **more), background=False) as engine:
        for number in range(first, first + count):
            engine.send("orders", b"%05d " % number * 40)


def numbers(paths: Path | Sequence[Path], **how: Any) -> list[int]:
    return [int(body[:5]) for body in bodies(paths, **how)]


def segments(path: Path) -> list[Path]:
    return sorted(path.glob("*.seg"))


def ship(path: Path, to: Path) -> Path:
    """The closed segments of a directory, and nothing else."""
    to.mkdir(parents=True, exist_ok=True)
    for file in segments(path)[:-1]:
        shutil.copy(file, to)
    return to


# --- whose rows are whose ---------------------------------------------------------------------


def test_fifty_directories_are_one_table(tmp_path: Path) -> None:
    """Each row says where it is from.

    Planning reads a checkpoint and the records after it: some 5 ms for each directory.
    """
    for number in range(50):
        path = tmp_path / f"host=web{number % 5}" / f"shop{number}"
        path.parent.mkdir(exist_ok=True)
        write(path, number * 100, 3)
    started = perf_counter()
    journals = list(see_all([f"{tmp_path}/*/*"]))
    seconds = perf_counter() - started
    assert len(journals) == 50
    assert seconds < 5, "not a measurement: a hundred times as long as it should take"
    found = rows([tmp_path / "*" / "*"], columns=["engine", "host", "store", "body"])
    told = {(row["engine"], row["host"], int(row["body"][:5])) for row in found}
    assert told == {
        (f"shop{number}", f"web{number % 5}", number * 100 + each)
        for number in range(50)
        for each in range(3)
    }
    assert len({row["store"] for row in found}) == 50


def test_a_read_of_several_directories_adds_engine_host_and_store(tmp_path: Path) -> None:
    """A read of one directory gives these columns on request. The engine is the directory's name,
    the host is in its LOCK, the store in its segments.
    """
    write(tmp_path / "shop", count=1)
    (row,) = rows(tmp_path / "shop")
    assert "engine" not in row
    (asked,) = rows(tmp_path / "shop", columns=["engine", "host", "store"])
    assert asked["engine"] == "shop"
    assert asked["host"] == socket.gethostname()
    assert len(bytes.fromhex(asked["store"])) == 16
    (one,) = rows([tmp_path / "*"])
    assert one == row | asked


@pytest.mark.parametrize(
    ("path", "origin"),
    [
        ("/data/shop", PathOrigin("shop", None)),
        ("/data/shop/", PathOrigin("shop", None)),
        ("/data/host=web1/shop", PathOrigin("shop", "web1")),
        ("/data/host=web1/engine=shop/fmq", PathOrigin("shop", "web1")),
        ("/data/engine=a%20b/day=7", PathOrigin("a b", None)),
        ("/data/host=/engine=", PathOrigin("engine=", None)),
    ],
)
def test_engine_and_host_are_taken_from_parts_of_the_path(path: str, origin: PathOrigin) -> None:
    assert origin_of(path) == origin


def test_a_shipped_directory_has_no_host_unless_its_path_says_so(tmp_path: Path) -> None:
    write(tmp_path / "shop")
    ship(tmp_path / "shop", tmp_path / "shipped")
    ship(tmp_path / "shop", tmp_path / "host=web9" / "shop")
    assert {row["host"] for row in rows(tmp_path / "shipped", columns=["host"])} == {None}
    assert {row["host"] for row in rows(tmp_path / "host=web9/shop", columns=["host"])} == {"web9"}


def test_a_pattern_finds_directories_and_ignores_files(tmp_path: Path) -> None:
    write(tmp_path / "a", 1, 1)
    write(tmp_path / "b", 2, 1)
    (tmp_path / "c.txt").write_text("not a directory")
    assert numbers(tmp_path / "*") == [1, 2]
    assert numbers(tmp_path / "[b-z]") == [2]
    with pytest.raises(NotAStore, match=r"/x\*: no directory is called so. Nothing was read"):
        rows(tmp_path / "x*")


# --- copies -----------------------------------------------------------------------------------


def test_a_store_and_its_copy_are_read_once(tmp_path: Path) -> None:
    """An older copy adds nothing, whichever of the two is named first."""
    shop, copy = tmp_path / "shop", tmp_path / "copy"
    write(shop)
    shutil.copytree(shop, copy)
    assert numbers([shop, copy]) == list(range(40))
    write(shop, 40)
    assert len(segments(shop)) > len(segments(copy))
    assert numbers([shop, copy]) == numbers([copy, shop]) == list(range(80))
    origins = {row["engine"] for row in rows([copy, shop])}
    assert origins == {"shop"}, "that of the copy that reaches furthest"


def test_a_segment_that_one_copy_has_dropped_is_read_from_the_other(tmp_path: Path) -> None:
    shop, copy = tmp_path / "shop", tmp_path / "copy"
    write(shop)
    shutil.copytree(shop, copy)
    write(shop, 40, retain_bytes=8192, keep_unread=False)
    assert numbers(shop)[0] > 40, "even the segment that the copy has in part"
    found = numbers([shop, copy])
    assert found == [*range(40), *numbers(shop)]


def test_a_decision_in_only_the_newer_copy_counts(tmp_path: Path) -> None:
    """A transaction whose PREPARE only the older copy has is still undecided."""
    shop, copy = tmp_path / "shop", tmp_path / "copy"
    with fmq.open(shop, SMALL) as engine:
        for name in ("decided", "waiting"):
            _prepare(engine, name)
    write(shop)
    shutil.copytree(shop, copy)
    with fmq.open(shop, SMALL) as engine:
        engine.decide("decided", "commit")
    write(shop)
    expected = {"decided": "committed", "waiting": "undecided"}
    assert states([copy, shop]) == expected
    shipped = ship(shop, tmp_path / "shipped")
    segments(shipped)[0].unlink()
    assert states([shipped]) == {"decided": "committed"}
    assert states([copy, shipped]) == expected
    assert states([copy]) == dict.fromkeys(expected, "undecided")


def states(paths: Sequence[Path]) -> dict[str, str]:
    return {row["tx_id"]: row["state"] for row in rows(paths, "transactions")}


@pytest.mark.parametrize(
    ("count", "how"),
    [(1, "the records differ, at or behind"), (30, "the records are not the same")],
)
def test_copies_that_have_diverged_are_refused(tmp_path: Path, count: int, how: str) -> None:
    """The bytes of an unsealed segment or the chain of a sealed one differ. The error names both
    copies.
    """
    shop, copy = tmp_path / "shop", tmp_path / "copy"
    write(shop)
    shutil.copytree(shop, copy)
    write(shop, 100, count)
    write(copy, 200, count)
    with pytest.raises(Diverged) as caught:
        rows([shop, copy])
    assert str(shop) in str(caught.value)
    assert str(copy) in str(caught.value)
    assert how in str(caught.value)
    assert "Name only the one that counts" in str(caught.value)
    assert numbers(shop)[-1] == 99 + count
    assert numbers(copy)[-1] == 199 + count


def test_a_copy_that_ended_a_segment_early_has_diverged(tmp_path: Path) -> None:
    """Up to that end the records are the same."""
    shop, copy = tmp_path / "shop", tmp_path / "copy"
    write(shop, count=1)
    shutil.copytree(shop, copy)
    with fmq.open(copy, SMALL, background=False) as engine:
        engine.send("orders", b"\0" * 3900)
    write(shop, count=1)
    with pytest.raises(Diverged, match="one ends at"):
        rows([shop, copy])


@pytest.mark.parametrize("segment_bytes", [4096, 6000])
def test_diverged_copies_are_found_by_any_segment_that_is_left(
    tmp_path: Path, segment_bytes: int
) -> None:
    """Retention has dropped the segment where they diverged. Later segments differ too."""
    shop, copy = tmp_path / "shop", tmp_path / "copy"
    write(shop)
    shutil.copytree(shop, copy)
    write(shop, 100, 200, retain_bytes=40_000, keep_unread=False)
    assert numbers(shop)[0] > 100
    with fmq.open(copy, fmq.Options(segment_bytes=segment_bytes), background=False) as engine:
        for _ in range(200):
            engine.send("orders", b"other" * 40)
    with pytest.raises(Diverged, match=r"only one has|one ends at|the records"):
        rows([shop, copy])


def test_a_damaged_copy_is_not_reported_as_diverged(tmp_path: Path) -> None:
    """Different bytes are damage unless their checksums are right."""
    shop, copy = tmp_path / "shop", tmp_path / "copy"
    write(shop)
    shutil.copytree(shop, copy)
    last = segments(copy)[-1]
    data = bytearray(last.read_bytes())
    data[200] ^= 1
    last.write_bytes(data)
    with pytest.raises(Damaged, match=f"{last}, position") as caught:
        rows([shop, copy])
    assert not isinstance(caught.value, Diverged)


# --- shipped segments -------------------------------------------------------------------------


def test_shipped_segments_are_read_without_any_other_file(tmp_path: Path) -> None:
    """There is no checkpoint, index or LOCK. What retention dropped before them is no gap."""
    shop = tmp_path / "shop"
    write(shop, count=150, retain_bytes=16384, keep_unread=False)
    first = numbers(shop)[0]
    assert first > 0
    shipped = ship(shop, tmp_path / "shipped")
    assert {file.suffix for file in shipped.iterdir()} == {".seg"}
    end = int(segments(shop)[-1].stem)
    expected = [row for row in rows(shop) if row["position"] < end]
    assert rows(shipped) == expected
    assert rows(shipped, "transactions") == rows(shipped, "damage") == []
    shutil.copy(segments(shop)[-1], shipped)
    assert rows(shipped) == rows(shop)


def test_planning_over_shipped_indexes_reads_only_headers(tmp_path: Path) -> None:
    """This holds for every view but `transactions`, which needs a checkpoint to read less."""
    write(tmp_path / "shop", count=100)
    shipped = ship(tmp_path / "shop", tmp_path / "shipped")
    for file in segments(shipped):
        shutil.copy((tmp_path / "shop" / file.name).with_suffix(".idx"), shipped)
    disk = CountingDisk()
    (journal,) = see_all([str(shipped)], disk=disk)
    assert len(journal.segments) == len(segments(shipped)) > 4
    assert disk.segments() == []
    end = int(segments(tmp_path / "shop")[-1].stem)
    assert rows(shipped) == [row for row in rows(tmp_path / "shop") if row["position"] < end]


def test_a_directory_and_its_shipped_segments_are_one_store(tmp_path: Path) -> None:
    shop = tmp_path / "shop"
    write(shop)
    shipped = ship(shop, tmp_path / "shipped")
    write(shop, 40)
    ship(shop, shipped)
    assert numbers([shop, shipped]) == numbers([shipped, shop]) == list(range(80))


@pytest.mark.parametrize("wound", ["missing", "damaged"])
def test_permissive_mode_lists_no_undecided_transaction_from_before_a_gap(
    tmp_path: Path, wound: str
) -> None:
    """A transaction prepared before the part left out may have been decided in it."""
    shop = tmp_path / "shop"
    with fmq.open(shop, SMALL, background=False) as engine:
        _prepare(engine, "decided")
        _fill(engine)
        engine.decide("decided", "commit")
        _fill(engine)
        gone = [file for file in segments(shop) if b"decided" in file.read_bytes()][-1]
        _prepare(engine, "late")
        _fill(engine)
    shipped = ship(shop, tmp_path / "shipped")
    assert states([shipped]) == {"decided": "committed", "late": "undecided"}
    data = bytearray((shipped / gone.name).read_bytes())
    (shipped / gone.name).unlink()
    if wound == "damaged":
        data[data.rindex(b"decided")] ^= 1
        (shipped / gone.name).write_bytes(data)
    found = rows(shipped, "transactions", permissive=True)
    assert [(row["tx_id"], row["state"]) for row in found] == [("late", "undecided")]


def _prepare(engine: fmq.Engine, name: str) -> None:
    tx = engine.transaction(tx_id=name)
    tx.send("orders", b"%05d" % 0)
    tx.prepare()


def _fill(engine: fmq.Engine) -> None:
    for _ in range(3):
        engine.send("orders", b"\0" * 3000)


def test_a_missing_segment_among_shipped_ones_is_damage(tmp_path: Path) -> None:
    write(tmp_path / "shop")
    shipped = ship(tmp_path / "shop", tmp_path / "shipped")
    gone = segments(shipped)[1]
    gone.unlink()
    with pytest.raises(Damaged, match=f"{gone}, position 4096: the segment is missing"):
        rows(shipped)
    (row,) = rows(shipped, "damage")
    assert (row["segment"], row["skipped_bytes"]) == (gone.name, 4096)
