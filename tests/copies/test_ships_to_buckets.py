"""A bucket is a place like a directory, and two tools that ship to it do not mix.

The server is moto's, which speaks S3 over HTTP.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import fmq
from fmq.copies import forget_shipping
from fmq.errors import BackupRefused, BadName, Damaged, Unreadable
from fmq.testing import CrashDisk, FakeClock
from tests.recovery.sights import OPTIONS, seen, work
from tests.small import bodies, fill, opened

boto3 = pytest.importorskip("boto3")
moto = pytest.importorskip("moto.server")
S = "s3://bucket/queues/shop"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


class Bucket:
    """An empty bucket, and what is done before each request to it."""

    def __init__(self) -> None:
        boto3.setup_default_session()
        self.session = boto3.DEFAULT_SESSION
        self.client = self.session.client("s3")
        self.at(0)
        self.client.create_bucket(Bucket="bucket")
        self.empty()
        self.session.events.register("before-send.s3", self._see)

    def empty(self) -> None:
        for key in self.names():
            self.client.delete_object(Bucket="bucket", Key=key)

    def at(self, number: int, act: Callable[[], object] = lambda: None) -> None:
        """Have `act` called before a request, counted from now on."""
        self._number, self._act = number, act
        self._requests, self._is_busy = 0, False

    def names(self) -> list[str]:
        found = self.client.list_objects_v2(Bucket="bucket").get("Contents", ())
        return [each["Key"] for each in found]

    def body(self, key: str) -> bytes:
        return bytes(self.client.get_object(Bucket="bucket", Key=key)["Body"].read())

    def _see(self, **named: Any) -> None:
        if not self._is_busy:
            self._requests, self._is_busy = self._requests + 1, True
            try:
                if self._requests == self._number:
                    self._act()
            finally:
                self._is_busy = False


@pytest.fixture
def bucket(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    for name, value in {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    return Bucket()


def shipped(disk: Any, path: str = "data", **named: Any) -> fmq.Shipped:
    return fmq.ship(path, S, disk=disk, **named)


def restored(disk: Any, path: str = "restored") -> fmq.Engine:
    fmq.restore(S, path, disk=disk)
    assert fmq.check(path, disk=disk).ok
    return fmq.open(path, disk=disk, clock=FakeClock(), background=False)


def test_a_restore_of_a_bucket_shows_what_the_engine_showed(bucket: Bucket) -> None:
    disk = CrashDisk()
    with opened(disk, **OPTIONS) as engine:
        for _ in range(3):
            fill(engine)
            shipped(disk)
        work(engine)
        shown = seen(engine)
        engine.checkpoint()
        assert shipped(disk).position == engine.stats().position
        assert shipped(disk).shipped_bytes == 0
        engine.send("t", b"later")
    pieces = [key for key in bucket.names() if key.endswith(".piece")]
    whole = {key.split("-")[1] for key in pieces}
    assert len(pieces) <= len(whole) + 1
    with restored(disk) as other:
        assert seen(other) == shown


def test_erased_and_dropped_messages_are_removed_from_the_bucket(bucket: Bucket) -> None:
    disk = CrashDisk()
    with opened(disk, retain_bytes=8192) as engine:
        for number in range(9):
            engine.send("t", b"%02d" % number * 500, key=f"k{number % 2}")
            engine.sync()
            shipped(disk)
        engine.erase("t", key="k1")
        engine.checkpoint()
        shipped(disk)
        (queue,) = engine.queues("t")
        expected = bodies(engine, "t", 0, queue.first)
    assert queue.first > 0
    assert not [key for key in bucket.names() if b"0505" in bucket.body(key)]
    with restored(disk) as other:
        assert bodies(other, "t", 0, queue.first) == expected
    assert forget_shipping("data", S + "/", disk=disk)


class Stopped(Exception):
    """Raised in the place of a request."""


def stop() -> None:
    raise Stopped


def test_a_tool_that_ends_at_any_request_leaves_a_clean_prefix(bucket: Bucket) -> None:
    disk = CrashDisk()
    with opened(disk) as engine:
        engine.send("t", b"0" * 300)
        engine.sync()
        shipped(disk)
        for number in range(1, 20):
            engine.send("t", b"%d" % number * 300)
        engine.sync()
        expected = bodies(engine, "t")
        stop_at = ends = 0
        while not ends:
            stop_at += 1
            bucket.at(stop_at, stop)
            try:
                shipped(disk)
                ends = stop_at
            except Stopped:
                pass
            bucket.at(0)
            with restored(disk, f"restored {stop_at}") as other:
                found = bodies(other, "t")
                assert found
                assert found == expected[: len(found)]
        assert found == expected
    assert ends > 3


def two_histories() -> CrashDisk:
    """A journal that was shipped, and another way that it went on after it was restored."""
    disk = CrashDisk()
    with opened(disk) as engine:
        engine.send("t", b"common")
    fmq.backup("data", "before", disk=disk, clock=FakeClock())
    fmq.restore("before", "again", disk=disk)
    shipped(disk)
    with opened(disk) as engine:
        for _ in range(30):
            engine.send("t", b"one" * 30)
    with fmq.open(
        "again", fmq.Options(segment_bytes=4096), disk=disk, clock=FakeClock(), background=False
    ) as engine:
        engine.send("t", b"other" * 100)
    return disk


def test_two_tools_with_two_histories_never_mix_them(bucket: Bucket) -> None:
    """The second one runs as a whole before each request of the first one, one after another."""
    refused = at = 0
    outcomes = [""]
    while outcomes:
        at += 1
        bucket.empty()
        disk = two_histories()
        outcomes = []
        bucket.at(at, partial(ship_the_other, disk, outcomes))
        try:
            shipped(disk)
        except BackupRefused:
            refused += 1
        bucket.at(0)
        with restored(disk) as engine:
            common, *more = bodies(engine, "t")
        assert common == b"common"
        assert len({*more}) <= 1, f"mixed, with the other before request {at}"
        if "shipped" in outcomes:
            assert more == [b"other" * 100]
    # In the end the other one comes too late, or before anything was asked.
    assert refused >= at - 3


def ship_the_other(disk: CrashDisk, outcomes: list[str]) -> None:
    try:
        shipped(disk, "again")
        outcomes.append("shipped")
    except BackupRefused:
        outcomes.append("refused")


def without_conditions(request: Any, **named: Any) -> None:
    del request.headers["If-None-Match"]


def test_a_store_that_ignores_conditions_is_refused(bucket: Bucket) -> None:
    disk = CrashDisk()
    with opened(disk) as engine:
        engine.send("t", b"1")
    assert bucket.session is not None
    bucket.session.events.register("before-sign.s3", without_conditions)
    with pytest.raises(BackupRefused, match="ignores conditions"):
        shipped(disk)


def test_ship_overwrites_no_object_that_it_did_not_write(bucket: Bucket) -> None:
    disk = CrashDisk()
    with opened(disk) as engine:
        engine.send("t", b"1")
    with fmq.open("else", disk=disk, clock=FakeClock(), background=False) as other:
        other.send("t", b"x")
    bucket.client.put_object(Bucket="bucket", Key="queues/shop/letter.txt", Body=b"")
    with pytest.raises(BackupRefused, match=r"letter\.txt"):
        shipped(disk)
    bucket.empty()
    shipped(disk, "else")
    before = [*map(bucket.body, bucket.names())]
    with pytest.raises(BackupRefused, match="another journal"):
        shipped(disk)
    assert [*map(bucket.body, bucket.names())] == before
    key = "queues/shop/SHIP"
    bucket.client.put_object(Bucket="bucket", Key=key, Body=bucket.body(key)[:-9])
    for call in (lambda: shipped(disk, "else"), lambda: restored(disk)):
        with pytest.raises(Damaged):
            call()


def test_errors_name_the_bucket_and_what_to_look_at(bucket: Bucket) -> None:
    disk = CrashDisk()
    with opened(disk) as engine:
        engine.send("t", b"1")
    with pytest.raises(Unreadable, match=r"s3://nowhere.*AWS_"):
        fmq.ship("data", "s3://nowhere", disk=disk)
    with pytest.raises(BackupRefused, match="nothing that was shipped"):
        fmq.restore("s3://bucket/empty", "restored", disk=disk)
    with pytest.raises(BadName, match="an address"):
        fmq.ship("data", "gs://bucket/shop", disk=disk)


def test_the_command_ships_to_a_bucket_and_restores(bucket: Bucket, tmp_path: Path) -> None:
    with fmq.open(tmp_path / "shop") as engine:
        engine.send("t", b"1")
    for verb in (["ship", "shop", S, "--once"], ["restore", S, "new"]):
        subprocess.run([sys.executable, "-m", "fmq", *verb], cwd=tmp_path, check=True)
    with fmq.open(tmp_path / "new") as engine:
        assert bodies(engine, "t") == [b"1"]
