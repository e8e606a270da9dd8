"""A journal that was copied or shipped into an object store is read there as in its directory."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import fmq
import fmq.table
from fmq.buckets import described
from fmq.buckets.bucket_directory import BucketFile
from fmq.cli.main import main
from fmq.errors import NotAStore
from tests.buckets.conftest import LARGER
from tests.lake.conftest import add_to
from tests.table.test_fleet import ship

Put = Callable[[Path, str], str]
VIEWS = ("messages", "records", "transactions")


def test_all_views_of_a_copy_are_those_of_its_directory(shop: Path, put: Put) -> None:
    """The address says where the store is, or the environment does."""
    address = put(shop, "copy/shop")
    for view in VIEWS:
        assert read(address, view) == read("s3://lake/copy/shop", view) == read(shop, view) != []


def test_closed_segments_are_read_with_indexes_and_without(
    shop: Path, tmp_path: Path, put: Put
) -> None:
    shipped = ship(shop, tmp_path / "shipped")
    bare = put(shipped, "bare")
    for index in shop.glob("*.idx"):
        shutil.copy(index, shipped)
    address = put(shipped, "indexed")
    for view in ("messages", "transactions"):
        assert read(bare, view) == read(address, view) == read(shipped, view) != []


def read(path: object, view: str = "messages") -> list[dict[str, object]]:
    return fmq.table.read(str(path), view).read_all().to_pylist()  # type: ignore[no-any-return]


def test_what_is_new_is_read_from_a_position_on(shop: Path, put: Put) -> None:
    whole = read(shop)
    first = fmq.table.read(put(shop, "a"), limit_messages=50)
    rows = first.read_all().to_pylist()
    add_to(shop, 5, LARGER)
    news = fmq.table.read(put(shop, "a"), since=first.end).read_all().to_pylist()
    assert rows == whole[: len(rows)]
    assert rows + news == read(shop)


def test_a_pattern_finds_the_directories_of_a_bucket(shop: Path, tmp_path: Path, put: Put) -> None:
    """Copies of one store are read once. The path says whose rows they are."""
    other = tmp_path / "other"
    add_to(other, 3, LARGER)
    put(shop, "fleet/host=web1/engine=shop")
    put(shop, "fleet/host=web9/engine=shop")
    query = put(other, "fleet/host=web2/engine=other").partition("?")[2]
    columns = ["engine", "host", "body"]
    found = fmq.table.read(f"s3://lake/fleet/*/engine=[a-z]*?{query}", columns=columns).read_all()
    assert found.num_rows == len(read(shop)) + len(read(other))
    named = {(row["engine"], row["host"]) for row in found.to_pylist()}
    assert named == {("shop", "web1"), ("other", "web2")}
    with pytest.raises(NotAStore, match="no directory is called so"):
        fmq.table.read("s3://lake/fleet/*/nothing*")


def test_a_copy_in_a_bucket_is_verified(shop: Path, put: Put) -> None:
    """And damage in it is found."""
    address = put(shop, "copy/shop")
    assert main(["verify", address]) == 0
    assert fmq.check("s3://lake/copy/shop").messages == fmq.check(shop).messages
    largest = max(shop.glob("*.seg"), key=lambda file: file.stat().st_size)
    with largest.open("r+b") as file:
        file.seek(1000)
        file.write(b"\xff" * 8)
    put(shop, "copy/shop")
    assert main(["verify", address]) == 1


def test_what_is_no_journal_is_refused_by_name(put: Put, shop: Path) -> None:
    query = put(shop, "copy").partition("?")[2]
    with pytest.raises(NotAStore, match=r"s3://lake/nothing\?.*no journal was ever begun here"):
        read(f"s3://lake/nothing?{query}")


def test_an_address_says_on_other_machines_what_it_says_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """But no secret."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://here:9000")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.delenv("AWS_REGION", raising=False)
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    said = "scheme=http&endpoint_override=here%3A9000&region=us-east-1"
    assert described("s3://lake/shop/") == f"s3://lake/shop?{said}"
    assert described(f"s3://lake/shop?{said}") == f"s3://lake/shop?{said}"
    assert described("gs://lake/shop") == "gs://lake/shop"


class CountedObject:
    """An object in memory, which counts its requests."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.reads: list[int] = []

    def size(self) -> int:
        return len(self.data)

    def read_at(self, size: int, offset: int) -> bytes:
        self.reads.append(size)
        return self.data[offset : offset + size]


def test_many_small_reads_are_few_requests() -> None:
    """Heads of records that lie 100 kB apart, as for narrow columns; a single one reads little."""
    data = bytes(range(256)) * (16 << 12)
    stored = CountedObject(data)
    file = BucketFile("a", stored)
    for at in range(0, len(data), 100_000):
        assert file.read(at, 4096) == data[at : at + 4096]
    assert len(stored.reads) < 20 < len(data) / 100_000
    assert sum(stored.reads) <= 1.1 * len(data)
    stored.reads.clear()
    assert BucketFile("a", stored).read(5_000_000, 64) == data[5_000_000:][:64]
    assert sum(stored.reads) < 20_000
    assert BucketFile("a", stored).read(len(data) - 10, 64) == data[-10:]
