"""A journal in Google's object store is read there, and an Iceberg table is written there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import fmq
import fmq.lake
import fmq.table
from fmq.cli.main import main
from tests.buckets.conftest import LARGER
from tests.buckets.google_server import MISSING, GoogleServer
from tests.lake.conftest import add_to

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GoogleServer]:
    made = GoogleServer(tmp_path_factory.mktemp("google"))
    yield made
    made.end()


@pytest.fixture
def copy(shop: Path, server: GoogleServer) -> str:
    """The address of a copy of the shop. What is in it are no directories to pyarrow."""
    for file in shop.iterdir():
        if file.is_file() and file.suffix != ".spare":
            server.put(f"fleet/host=web1/shop/{file.name}", file.read_bytes())
    query = f"?scheme=http&endpoint_override={server.address}"
    return f"gs://anonymous@lake/fleet/host=web1/shop{query}"


def test_a_copy_is_read_and_verified(shop: Path, copy: str) -> None:
    for view in ("messages", "transactions"):
        rows = fmq.table.read(copy, view).read_all()
        assert rows == fmq.table.read(str(shop), view).read_all() and rows.num_rows
    assert main(["verify", copy]) == 0
    assert fmq.check(copy).messages == fmq.check(shop).messages


def test_a_pattern_finds_what_lies_below_it(copy: str) -> None:
    rows = fmq.table.read(copy.replace("web1/shop", "*/sh*"), columns=["host"]).read_all()
    assert set(rows.column("host").to_pylist()) == {"web1"}
    with pytest.raises(fmq.errors.NotAStore, match="no directory is called so"):
        fmq.table.read(copy.replace("web1/shop", "*/nothing*"))


def test_an_iceberg_table_is_delivered_to_and_audited(
    shop: Path, tmp_path: Path, server: GoogleServer
) -> None:
    """The catalog lies in a directory, the files of the table in the store."""
    pytest.importorskip("pyiceberg")
    url = str(tmp_path / "catalog" / "shop.messages")
    options = {
        "warehouse": "gs://lake/tables",
        "gcs.service.host": server.url,
        "gcs.oauth2.token": "any",
        "gcs.oauth2.token-expires-at": "9999999999999",
    }
    for _ in range(2):
        fmq.lake.deliver(str(shop), url, to="iceberg", once=True, rows=100, options=options)
        seen = fmq.lake.audit(str(shop), url, to="iceberg", options=options)
        assert seen.ok and seen.rows == fmq.table.read(str(shop)).read_all().num_rows
        add_to(shop, 3, LARGER)
