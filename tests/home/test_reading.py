"""A home is read without an owner and without a directory: its pieces, and its newest entries."""

from __future__ import annotations

from pathlib import Path

import pytest

import fmq
from fmq.errors import HomeRefused
from tests.cli.command import fmq_process


def test_all_of_a_home_is_read_and_its_owner_goes_on(tmp_path: Path) -> None:
    table = pytest.importorskip("fmq.table")
    home = f"file://{tmp_path}/home"
    with fmq.open(tmp_path / "a", fmq.Options(segment_bytes=64 * 1024), home=home) as owner:
        owner.create_topic("t", queues=1)
        for number in range(1200):  # so many that the floor is raised
            owner.send("t", b"%d" % number)
        owner.checkpoint()
        for number in range(1200, 1210):
            owner.send("t", b"%d" % number)
        stats = owner.stats().home
        assert stats is not None
        assert stats.floor > 1000
        with fmq.open(home, read_only=True) as reader:
            found = [int(bytes(each.body)) for each in reader.read("t", limit=9999)]
            assert found == [*range(1210)]
            assert reader.stats().position == owner.stats().position
        report = fmq.check(home)
        assert report.ok
        rows = table.read(home, columns=["body"]).read_all()
        assert [int(each) for each in rows["body"].to_pylist()] == [*range(1210)]
        assert fmq_process("verify", home).returncode == 0
        owner.send("t", b"more")


def test_a_home_that_is_not_there_is_an_address_still(tmp_path: Path) -> None:
    with pytest.raises(HomeRefused, match="no home can be read at this address"):
        fmq.open(f"file://{tmp_path}/none", read_only=True)
