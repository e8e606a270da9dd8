"""`fmq info`: what the directory holds, in agreement with the engine that wrote it."""

import os
from pathlib import Path

import fmq
from tests.cli.command import fmq_json, fmq_table


def test_info_shows_the_queues_and_positions_of_the_engine(shop: Path) -> None:
    with fmq.open(shop, background=False) as engine:
        said = fmq_json("info", shop)
        stats = engine.stats()
        expected = {(info.topic, info.queue): (info.first, info.next) for info in engine.queues()}
    queues = {
        (line["topic"], line["queue"]): (line["first"], line["next"]) for line in said.of("queue")
    }
    assert queues == expected
    (about,) = said.of("directory")
    assert about["visible_to"] == stats.durable_to
    assert about["messages"] == stats.messages
    assert about["checkpoint"]["applied_upto"] == stats.checkpointed_upto


def test_info_names_the_writing_process_while_it_writes(shop: Path) -> None:
    """Afterwards no process is named, though the lock file still has a name in it."""
    with fmq.open(shop, background=False):
        (about,) = fmq_json("info", shop).of("directory")
        assert (about["writer"], about["closed"]) == (f"process {os.getpid()}", True)
    (about,) = fmq_json("info", shop).of("directory")
    assert (about["writer"], about["closed"]) == (None, True)


def test_info_asks_the_process_that_serves(shop: Path) -> None:
    """It shows what the engine shows at that moment."""
    with fmq.open(shop, fmq.Options(sync="interval", sync_interval_seconds=3600)) as engine:
        (before,) = fmq_json("info", shop).of("directory")
        engine.send("audit", b"d")
        with engine.serve():
            said, queues = fmq_json("info", shop), engine.queues()
            assert "which serves others" in fmq_table("info", shop)
        (about,) = said.of("directory")
        assert (before["served"], about["served"]) == (False, True)
    assert [(each["topic"], each["next"]) for each in said.of("queue")] == [
        (each.topic, each.next) for each in queues
    ]


def test_info_counts_bytes_that_are_not_proven_durable(shop: Path) -> None:
    """Without its page, nothing says that the last append of a live engine is durable."""
    with fmq.open(shop, background=False) as engine:
        receipt = engine.send("audit", b"d")
        end = engine.stats().position
        (about,) = fmq_json("info", shop).of("directory")
        assert (about["visible_to"], about["not_vouched_bytes"]) == (end, 0)
        (shop / "DURABLE").unlink()
        (about,) = fmq_json("info", shop).of("directory")
    assert (about["visible_to"], about["closed"]) == (receipt.position, False)
    assert about["not_vouched_bytes"] == end - receipt.position > 0


def test_info_lists_consecutive_segments_with_their_ends(segments: Path) -> None:
    """All but the last are sealed."""
    lines = fmq_json("info", segments).of("segment")
    assert len(lines) == len(list(segments.glob("*.seg"))) > 2
    assert [line["base"] for line in lines[1:]] == [
        line["base"] + line["capacity"] for line in lines[:-1]
    ]
    assert [line["sealed"] for line in lines] == [True] * (len(lines) - 1) + [False]
    ends = {0: 0}
    for record in fmq_json("records", segments).lines:
        base = max(line["base"] for line in lines if line["base"] <= record["position"])
        ends[base] = record["position"] + (record["size"] + 7) // 8 * 8
    assert {line["base"]: line["end"] for line in lines} == ends


def test_info_lists_groups_and_undecided_transactions(shop: Path) -> None:
    said = fmq_json("info", shop)
    (group,) = said.of("group")
    assert (group["group"], group["topic"], group["acked_below"]) == ("billing", "audit", 1)
    assert (group["unread"], [line["tx_id"] for line in said.of("undecided")]) == (2, ["order-3"])
    table = fmq_table("info", shop)
    assert all(word in table for word in ("billing", "order-3", "audit", "checkpoint"))


def test_info_shows_acks_written_after_the_checkpoint(shop: Path) -> None:
    """A live engine wrote them, and its page says that they are durable."""
    with fmq.open(shop, background=False) as engine:
        with engine.consumer("audit", group="billing") as consumer:
            left = [*consumer.poll(), *consumer.poll()]  # one of them was tried before
            max(left, key=lambda delivery: delivery.offset).ack()
        engine.send("audit", b"d")
        expected = engine.groups()
        said = fmq_json("info", shop)
    (line,) = said.of("group")
    assert (line["acked_below"], line["acked_beyond"]) == (1, 1)
    assert line["unread"] == expected[0].unread


def test_info_reports_damage_and_shows_the_rest(segments: Path) -> None:
    """Flip two bits of a head, and remove the checkpoints, which would pass over it."""
    for slot in segments.glob("checkpoint.*"):
        slot.unlink()
    first = min(segments.glob("*.seg"))
    data = bytearray(first.read_bytes())
    data[80] ^= 1
    data[81] ^= 1
    first.write_bytes(data)
    code, lines, error = fmq_json("info", segments)
    assert (code, bool(lines)) == (1, True)
    assert first.name in error
