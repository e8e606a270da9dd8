"""An object store with an empty bucket. The server is moto's, which speaks S3 over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

import fmq
from tests.lake.conftest import add_to

LARGER = fmq.Options(segment_bytes=32 << 10, topic_queues={"orders": 2})
boto3 = pytest.importorskip("boto3")
moto = pytest.importorskip("moto.server")


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"{host}:{port}"
    server.stop()


@pytest.fixture
def put(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Path, str], str]]:
    """Copy the files of a directory, and return the address, whose query names the server."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{endpoint}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    client = boto3.Session().client("s3")
    client.create_bucket(Bucket="lake")

    def copied(path: Path, name: str) -> str:
        for file in path.iterdir():
            if file.is_file() and file.suffix != ".spare":
                key = f"{name}/{file.name}"
                client.put_object(Bucket="lake", Key=key, Body=file.read_bytes())
        return f"s3://lake/{name}?scheme=http&endpoint_override={quote(endpoint)}&region=us-east-1"

    yield copied
    for each in client.list_objects_v2(Bucket="lake").get("Contents", ()):
        client.delete_object(Bucket="lake", Key=each["Key"])
    client.close()


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    path = tmp_path / "shop"
    add_to(path, 40, LARGER)
    return path
