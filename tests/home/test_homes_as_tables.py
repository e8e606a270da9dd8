"""Homes are read as one table, by a pattern, whatever storage they lie in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import fmq
from fmq.errors import NotAStore

table = pytest.importorskip("fmq.table")
boto3 = pytest.importorskip("boto3")
moto = pytest.importorskip("moto.server")
SMALL = fmq.Options(segment_bytes=4 << 20, topic_queues={"t": 1})
LARGE = 20, 1 << 20  # messages, of so many bytes, that raise the floor


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    for name, value in (
        ("AWS_ENDPOINT_URL", f"http://{host}:{port}"), ("AWS_REGION", "us-east-1"),
        ("AWS_ACCESS_KEY_ID", "key"), ("AWS_SECRET_ACCESS_KEY", "secret"),
    ):  # fmt: skip
        monkeypatch.setenv(name, value)
    client = boto3.Session().client("s3")
    client.create_bucket(Bucket="fleet")
    client.close()
    yield "s3://fleet"
    server.stop()


def owner_of(home: str, path: Path, count: int, size: int = 300) -> fmq.Engine:
    """Return an engine that has sent so many messages. If they are LARGE, the home has most in
    pieces, and some in entries.
    """
    engine = fmq.open(path, SMALL, home=home)
    for number in range(count):
        engine.send("t", b"%d " % number + bytes(size))
        if number == count - 3:
            engine.checkpoint()
    return engine


def numbers(paths: str, view: str = "messages", **how: object) -> list[int]:
    rows = table.read(paths, view, **how).read_all()["body"].to_pylist()
    return [int(each.partition(b" ")[0]) for each in rows]


def test_a_pattern_finds_homes_and_directories_of_a_shared_folder(tmp_path: Path) -> None:
    """The tail is there, too, while owners go on."""
    shared = tmp_path / "shared"
    shared.mkdir()
    first = owner_of(f"file://{shared}/shop", tmp_path / "a", *LARGE)
    second = owner_of(f"file://{shared}/mail", tmp_path / "b", 7)
    stats = first.stats().home
    with fmq.open(shared / "own", SMALL) as own:
        own.send("t", b"0 ")
        rows = table.read(f"file://{shared}/*").read_all().to_pylist()
        assert {row["engine"] for row in rows} == {"shop", "mail", "own"}
        assert len(rows) == 28
        assert stats is not None
        assert 0 < stats.floor < stats.entries
    first.send("t", b"20 ")
    assert numbers(f"{shared}/shop") == [*range(21)]
    second.close()
    first.close()


def test_homes_of_a_bucket_are_a_fleet(bucket: str, tmp_path: Path) -> None:
    with (
        owner_of(f"{bucket}/shops/engine=a", tmp_path / "a", 40),
        owner_of(f"{bucket}/shops/engine=b", tmp_path / "b", 3),
    ):
        found = table.read(f"{bucket}/shops/*", columns=["engine", "body"]).read_all()
        assert sorted(found["engine"].to_pylist()) == ["a"] * 40 + ["b"] * 3


def test_a_read_goes_on_where_the_last_one_has_ended(tmp_path: Path) -> None:
    home = f"file://{tmp_path}/home"
    with owner_of(home, tmp_path / "a", 30) as engine:
        first = table.read(f"{home}*", limit_messages=10)
        assert first.read_all().num_rows == 10
        engine.send("t", b"30 ")
        rest = table.read(f"{home}*", since=first.end).read_all()
        assert rest.num_rows == 21


def test_an_address_with_a_password_is_not_planned(tmp_path: Path) -> None:
    address = "postgresql://me:secret@127.0.0.1:1/db/shop"
    with pytest.raises(NotAStore, match="has a password") as caught:
        table.read([address, str(tmp_path)])
    assert "secret" not in str(caught.value)
