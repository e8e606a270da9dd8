"""What `fmq records` and the view `records` of the table say of each sort of CHANGE."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import fmq
from fmq import filters
from fmq.store.bytes.change_words import SAYS
from fmq.store.bytes.kinds import ChangeKind
from fmq.table.read import read
from fmq.testing import FakeClock
from tests.cli.command import fmq_json, fmq_table

SAID = {
    "MAKE_GROUP": "group billing begins at offset 0 of queue 0, with the filter tags:paid",
    "SEEK": "group billing goes on at offset 1 of queue 0",
    "SKIP": "group billing passes over 1 message from offset 2 of queue 0",
    "FILTER": "group billing has no filter any more",
    "DELETE_GROUP": "group billing is deleted",
    "ADD_QUEUES": "the topic has 3 queues",
    "RETAIN": "the topic keeps messages for 90.5 s",
    "TRIM": "the topic begins at offset 4 of queue 0",
    "DELETE_TOPIC": "the topic is deleted",
    "BEGIN_DEAD": "group billing has dead letters",
    "END_DEAD": "1 dead letter of group billing purged",
    "FIRE": "timer 1104 published",
    "PAUSE": "group billing is paused by ann: the database is slow",
    "RESUME": "group billing is resumed by bob",
    "LIMIT": "group billing has the limit concurrency=3, rate=0.5, by ann: a slow database",
    "CODEC": "bodies of the topic are made by json, version 2",
    "CONFIGURE": "the directory stores lease_seconds as 7.5, nothing for queues",
    "SCHEDULE": "schedule report (0 0 1 1 * in UTC) is paused by ann: later",
    "DUE": "schedule report published at once by ann: a look",
    "UNSCHEDULE": "schedule report is removed by bob",
    "RECALL": "timer 1208 recalled, due 2026-01-01 01:00:00",
}


def change_everything(path: Path) -> None:
    """Make a change of each kind."""
    clock = FakeClock()
    with fmq.open(path, clock=clock, background=False) as engine:
        engine.send_many("orders", [b"0", b"1", b"2", b"3"])
        engine.create_group("billing", "orders", filter=filters.tags("paid"))
        group, topic = engine.group("billing"), engine.topic("orders")
        group.set_filter("orders", None)
        group.seek("orders", queue=0, offset=1)
        group.skip("orders", 0, 2)
        with engine.consumer("orders", group="billing") as consumer:
            consumer.poll(limit=1)[0].reject("no such customer")
        engine.dead_letters("billing").purge(all=True)
        engine.send("orders", b"later", delay=1.0)
        engine.recall(engine.send("orders", b"never", delay=3600.0))
        topic.add_queues(2)
        topic.retain(90.5)
        engine.topic("orders", codec=fmq.codecs.json(version=2))
        clock.advance(100)
        engine.sync()
        report = engine.schedule("report", "0 0 1 1 *", "orders", b"", by="ann")
        report.run_now(reason="a look", by="ann")
        report.pause(reason="later", by="ann")
        report.remove(by="bob")
        group.pause(reason="the database is slow", by="ann")
        group.resume(by="bob")
        group.limit(concurrency=3, rate=0.5, reason="a slow database", by="ann")
        group.delete()
        topic.delete()
        engine.configure(fmq.Options(queues=3))
        engine.configure(fmq.Options(lease_seconds=7.5), reset=["queues"])


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("changes") / "shop"
    change_everything(path)
    return path


def test_each_kind_of_change_has_its_words_and_a_test_case() -> None:
    assert {*SAYS} == {*ChangeKind}
    assert {*SAID} == {kind.name for kind in ChangeKind}


def test_records_describe_each_change_in_words(path: Path) -> None:
    lines = fmq_json("records", path, "--kind", "CHANGE").lines
    assert {line["asked"]: line["says"] for line in lines} == SAID


def test_a_person_reads_the_description_of_a_change_as_a_remark(path: Path) -> None:
    table = fmq_table("records", path, "--kind", "CHANGE")
    text = " ".join(table.split())
    for said in SAID.values():
        assert said.split(",")[0].split(" of ")[0] in text


def test_the_table_view_records_describes_changes_alike(path: Path) -> None:
    rows = [row for batch in read(str(path), "records") for row in batch.to_pylist()]
    said = [json.loads(row["change"]) for row in rows if row["kind"] == "CHANGE"]
    assert {each["asked"]: each["says"] for each in said} == SAID
