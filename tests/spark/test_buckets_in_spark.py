"""Spark reads a journal in an object store: each split says where the store is."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest
from pyspark.sql import SparkSession

from tests.lake.conftest import add_to
from tests.spark.reading import Reader
from tools.spark_streams import ended

boto3 = pytest.importorskip("boto3")
moto = pytest.importorskip("moto.server")


def test_a_bucket_is_read_by_batches_and_by_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    """The workers know nothing of the store but what the address says."""
    shop = tmp_path / "shop"
    add_to(shop, 10)
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        url = f"http://{host}:{port}"
        keys = {"aws_access_key_id": "k", "aws_secret_access_key": "s", "region_name": "us-east-1"}
        client = boto3.client("s3", endpoint_url=url, **keys)
        client.create_bucket(Bucket="spark")
        for file in shop.iterdir():
            if file.is_file() and file.suffix != ".spare":
                put = {"Bucket": "spark", "Key": f"a/{file.name}", "ACL": "public-read"}
                client.put_object(**put, Body=file.read_bytes())
        client.close()
        query = f"region=us-east-1&scheme=http&endpoint_override={quote(f'{host}:{port}')}"
        address = f"s3://anonymous@spark/*?{query}"
        wanted = Reader(spark, shop).view().select("topic", "offset", "body").collect()
        found = spark.read.format("fmq").load(address).select("topic", "offset", "body")
        assert sorted(found.collect()) == sorted(wanted) != []
        stream = spark.readStream.format("fmq").load(address).select("topic", "offset", "body")
        writer = stream.writeStream.format("memory").queryName("bucket")
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        ended(writer.trigger(availableNow=True).start)
        assert sorted(spark.table("bucket").collect()) == sorted(wanted)
    finally:
        server.stop()
