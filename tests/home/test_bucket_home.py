"""A home in a bucket. The server is moto's, which speaks S3 over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fmq
from fmq.errors import HomeRefused, TakenOver
from fmq.home.bucket_objects import BucketObjects
from fmq.home.objects import NoAnswer
from tests.home.conformance import check_calls, check_one_winner

boto3 = pytest.importorskip("boto3")
moto = pytest.importorskip("moto.server")


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def session(endpoint: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Any:
    """boto3's own session, whose requests a test can spoil, with an empty bucket."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    boto3.setup_default_session()
    client = boto3.client("s3")
    client.create_bucket(Bucket="homes")
    client.close()
    return boto3.DEFAULT_SESSION


def bodies(engine: fmq.Engine) -> list[bytes]:
    return [bytes(each.body) for each in engine.read("t")]


def test_a_bucket_keeps_what_a_home_needs(session: Any) -> None:
    check_calls("s3://homes/calls")
    # In this server the look for a key and its put are two steps, so machines cannot race there.
    check_one_winner("s3://homes/race", machines=1, slots=12)


def test_another_machine_takes_over_through_a_bucket(session: Any, tmp_path: Path) -> None:
    home = "s3://homes/shop"
    with fmq.open(tmp_path / "a", home=home) as first:
        first.send("t", b"1")
        with fmq.open(tmp_path / "b", home=home) as second:
            with pytest.raises(TakenOver):
                first.send("t", b"2")
            second.send("t", b"3")
            assert bodies(second) == [b"1", b"3"]
    with fmq.open(tmp_path / "c", home="s3://homes/shop/") as third:
        assert bodies(third) == [b"1", b"3"]


@pytest.mark.parametrize("status", [409, 503])
def test_an_answer_that_says_nothing_is_asked_for_again(
    session: Any, tmp_path: Path, status: int
) -> None:
    """Each third put arrives, and its caller gets an error that does not say so."""
    puts = [0]

    def spoil(response_dict: dict[str, Any], **_: Any) -> None:
        puts[0] += 1
        if puts[0] % 3 == 0:
            response_dict["status_code"] = status

    def opened(name: str) -> fmq.Engine:
        return fmq.open(tmp_path / name, home=f"s3://homes/lost-{status}")

    session.events.register("before-parse.s3.PutObject", spoil)
    with opened("a") as engine:
        for number in range(12):
            engine.send("t", b"%d" % number)
    session.events.unregister("before-parse.s3.PutObject", spoil)
    assert puts[0] > 12
    with opened("b") as engine:
        assert bodies(engine) == [b"%d" % number for number in range(12)]


def test_a_bucket_that_is_not_there_is_refused(session: Any, tmp_path: Path) -> None:
    with pytest.raises(HomeRefused, match=r"s3://nowhere/shop: cannot be used .*NoSuchBucket"):
        fmq.open(tmp_path / "a", home="s3://nowhere/shop")


def test_a_server_that_is_away_gives_no_answer(session: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    objects = BucketObjects("homes", "away")
    for call in (
        lambda: objects.create("slots/0", b""),
        lambda: objects.read("slots/0"),
        lambda: objects.names("slots"),
    ):
        with pytest.raises(NoAnswer):
            call()
    objects.close()
