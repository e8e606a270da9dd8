"""Spark reads homes: what lies in pieces, and the newest entries, while their owners go on."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest
from pyspark.sql import SparkSession

from tests.home.test_homes_as_tables import LARGE, owner_of
from tools.spark_streams import ended

boto3 = pytest.importorskip("boto3")
moto = pytest.importorskip("moto.server")


def test_a_fleet_of_homes_is_read_by_batches_and_by_a_stream(
    spark: SparkSession, tmp_path: Path
) -> None:
    homes = f"file://{tmp_path}/homes"
    (tmp_path / "homes").mkdir()
    with (
        owner_of(f"{homes}/shop", tmp_path / "a", *LARGE) as shop,
        owner_of(f"{homes}/mail", tmp_path / "b", 5),
    ):
        stats = shop.stats().home
        assert stats is not None
        assert 0 < stats.floor < stats.entries
        wanted = {("shop", each) for each in range(20)} | {("mail", each) for each in range(5)}
        found = spark.read.format("fmq").load(f"{homes}/*").select("engine", "offset")
        assert {*map(tuple, found.collect())} == wanted
        stream = spark.readStream.format("fmq").load(f"{homes}/*").select("engine", "offset")
        writer = stream.writeStream.format("memory").queryName("homes")
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        ended(writer.trigger(availableNow=True).start)
        assert {*map(tuple, spark.table("homes").collect())} == wanted


def test_homes_of_a_bucket_are_read_where_the_address_says(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The workers know nothing of the store but what the address says."""
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        with monkeypatch.context() as here:
            here.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
            here.setenv("AWS_REGION", "us-east-1")
            here.setenv("AWS_ACCESS_KEY_ID", "key")
            here.setenv("AWS_SECRET_ACCESS_KEY", "secret")
            client = boto3.Session().client("s3")
            client.create_bucket(Bucket="fleet")
            for name, count in (("shop", 30), ("mail", 4)):
                home = f"s3://fleet/homes/{name}"
                owner_of(home, tmp_path / name, count).close()
            for each in client.list_objects_v2(Bucket="fleet")["Contents"]:
                client.put_object_acl(Bucket="fleet", Key=each["Key"], ACL="public-read")
            client.close()
        query = f"region=us-east-1&scheme=http&endpoint_override={quote(f'{host}:{port}')}"
        address = f"s3://anonymous@fleet/homes/*?{query}"
        found = spark.read.format("fmq").load(address).select("engine").collect()
        assert sorted(row["engine"] for row in found) == ["mail"] * 4 + ["shop"] * 30
    finally:
        server.stop()
