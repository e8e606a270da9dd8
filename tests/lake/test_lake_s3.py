"""Delta and Iceberg in a bucket of S3: the same promises. The server is moto's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import fmq.lake
import fmq.table
from fmq.lake import LakeDelivery, table_at
from fmq.lake.lake_delivery import schema_for
from tests.lake.conftest import add_to
from tests.lake.tables import EXACT, MeddledTable, differences

boto3 = pytest.importorskip("boto3")
moto = pytest.importorskip("moto.server")
pytest.importorskip("deltalake")
URL = "s3://lake/messages"
KEYS = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_REGION": "us-east-1"}


@pytest.fixture
def options() -> Iterator[dict[str, str]]:
    """What the library needs to know to write into an empty bucket."""
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    client = boto3.client(
        "s3",
        endpoint_url=endpoint,
        aws_access_key_id="k",
        aws_secret_access_key="s",
        region_name="us-east-1",
    )
    client.create_bucket(Bucket="lake")
    client.close()
    yield {"AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": "true", **KEYS}
    server.stop()


def test_two_loops_into_a_bucket_double_nothing(shop: Path, options: dict[str, str]) -> None:
    """The other one delivers everything between the look and the first commit of this one."""

    def other() -> None:
        fmq.lake.deliver(str(shop), URL, to="delta", once=True, rows=100, options=options)

    with closing(MeddledTable(table_at(URL, "delta", schema_for("messages"), options), other)) as t:
        delivery = LakeDelivery(str(shop), t)
        delivery.run(once=True)
    assert delivery.stats().refused == 1
    assert differences(shop, URL, "delta", options) == EXACT
    assert fmq.lake.audit(str(shop), URL, to="delta", options=options).ok


def test_an_iceberg_table_in_a_bucket_is_delivered_to_and_audited(
    shop: Path, tmp_path: Path, options: dict[str, str]
) -> None:
    """The catalog lies in a directory, the files of the table in the bucket."""
    pytest.importorskip("pyiceberg")
    url = str(tmp_path / "catalog" / "shop.messages")
    known = {
        "warehouse": "s3://lake/tables",
        "s3.endpoint": options["AWS_ENDPOINT_URL"],
        "s3.region": options["AWS_REGION"],
        "s3.access-key-id": options["AWS_ACCESS_KEY_ID"],
        "s3.secret-access-key": options["AWS_SECRET_ACCESS_KEY"],
    }
    for _ in range(2):
        fmq.lake.deliver(str(shop), url, to="iceberg", once=True, rows=100, options=known)
        seen = fmq.lake.audit(str(shop), url, to="iceberg", options=known)
        assert seen.ok and seen.rows == fmq.table.read(str(shop)).read_all().num_rows
        add_to(shop, 3)
