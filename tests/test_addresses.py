"""A path that is an address is refused wherever a path is taken, and makes no folder like it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fmq
import fmq.aio
from fmq.cli.main import main
from fmq.errors import FmqError


async def open_aio(path: Any) -> None:
    async with await fmq.aio.open(path):
        pass


async def connect_aio(path: Any) -> None:
    async with await fmq.aio.connect(path):
        pass


def table(path: Any) -> object:
    return pytest.importorskip("fmq.table").read(str(path)).read_all()


def export(path: Any) -> None:
    from fmq import export

    with fmq.open("shop") as engine:
        engine.send("t", b"1")
    export.export("shop", str(path), engine="arrow")


CALLS: dict[str, Callable[[Any], object]] = {
    "open": fmq.open,
    "read only": lambda path: fmq.open(path, read_only=True),
    "connect": fmq.connect,
    "check": fmq.check,
    "aio.open": lambda path: asyncio.run(open_aio(path)),
    "aio.connect": lambda path: asyncio.run(connect_aio(path)),
    "table": table,
    "export": export,
}
KNOWS_HOMES = {"connect", "aio.connect"}
WRITES = {"export": ("s3://bucket/shop", "file:///tmp/no-such-shop")}
ADDRESSES = ["s3://bucket/shop", "hdfs://host:8020/shop", Path("s3://bucket/shop")]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("address", [*ADDRESSES, "file:///tmp/no-such-shop"], ids=str)
@pytest.mark.parametrize("call", CALLS)
def test_an_address_is_refused_as_a_path(call: str, address: str | Path, folder: Path) -> None:
    """A table takes file:///shop, as Spark names files; here there is none. It is read in an object
    store, too, and verified there: tests/buckets.
    """
    if call in ("table", "check") and address == "s3://bucket/shop":
        pytest.skip("it may be there")
    if address in WRITES.get(call, ()):
        pytest.skip("it is written there: tests/export")
    if call in KNOWS_HOMES and isinstance(address, str) and not address.startswith("hdfs:"):
        pytest.skip("the address of a home: see tests/home")
    if call == "table" and isinstance(address, Path):
        pytest.skip("a table takes paths as text")
    with pytest.raises(FmqError) as caught:
        CALLS[call](address)
    if not (call == "table" and str(address).startswith("file:")):
        assert "address" in str(caught.value)
        assert "Nothing was" in str(caught.value)
    assert set(os.listdir(folder)) <= {"shop"}


def test_a_journal_in_memory_is_of_one_engine_and_ends_with_it(folder: Path) -> None:
    """No folder of this name is made, and each call makes another journal."""
    with fmq.open(":memory:") as engine, fmq.open(":memory:") as other:
        with engine.transaction() as tx:
            tx.send("orders", b"one")
            tx.send("mails", b"two")
        with engine.consumer("orders", group="g") as consumer:
            (delivery,) = consumer.poll()
            delivery.ack()
        assert not other.queues() and not engine.groups("g")[0].unread
        with pytest.raises(fmq.errors.BadOption, match="not served"):
            engine.serve()
        engine.backup("copy")
    assert os.listdir(folder) == ["copy"]
    fmq.restore("copy", "shop")
    with fmq.open("shop") as engine:
        assert [each.body for each in engine.read("mails")] == [b"two"]
    with fmq.open(":memory:") as engine:
        assert not engine.queues()


@pytest.mark.parametrize("call", ["connect", "check"])
def test_no_other_call_finds_a_journal_in_memory(call: str, folder: Path) -> None:
    with pytest.raises(fmq.errors.BadName, match=r"of the engine alone"):
        CALLS[call](":memory:")
    with pytest.raises(fmq.errors.NotAStore, match="nothing to read"):
        fmq.open(":memory:", read_only=True)
    assert os.listdir(folder) == []
    fmq.open("./:memory:").close()


@pytest.mark.parametrize(
    "words",
    [
        ["info", "s3://bucket/shop"],
        ["records", "s3://bucket/shop"],
        ["verify", "hdfs://bucket/shop"],
        ["tx", "list", "s3://bucket/shop"],
        ["group", "list", "s3://bucket/shop"],
        ["serve", "s3://bucket/shop"],
        ["demo", "s3://bucket/shop"],
        ["export", "shop", "hdfs://bucket/out"],
        ["export", "shop", "abfs://bucket/out"],
        ["export", "shop", "s3:/bucket/out"],
        ["export", "shop", "file:/out"],
        ["export", "hdfs://bucket/shop", "out"],
        ["ship", "shop", "gs://bucket/shop"],
        ["ship", "shop", "az://bucket/shop"],
        ["ship", "shop", "file:///shop"],
        ["restore", "gs://bucket/shop", "new"],
    ],
    ids=" ".join,
)
def test_the_command_line_refuses_an_address(
    words: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with fmq.open("shop") as engine:
        engine.send("t", b"1")
    assert main(words) != 0
    assert "address" in capsys.readouterr().err
    assert os.listdir(folder) == ["shop"]


def test_a_folder_named_like_an_address_can_be_opened_relative_to_here(folder: Path) -> None:
    """And addresses of a server are none of a directory."""
    (folder / "s3:").mkdir()
    with fmq.open("./s3:/shop") as engine:
        engine.send("t", b"1")
    assert (folder / "s3:" / "shop").is_dir()
    with pytest.raises(fmq.errors.BadOption):
        fmq.connect("tcp://nobody")
