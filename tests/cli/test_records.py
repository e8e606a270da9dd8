"""`fmq records`: every record, in order, whatever became of it and of the journal."""

import shutil
from pathlib import Path

import pytest

import fmq
from fmq.store.bytes.record import aligned
from fmq.testing import FakeClock
from tests.bind.shop import connect, place
from tests.cli.command import contents, fmq_json, fmq_table


def flip(file: Path, at: int) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= 1
    file.write_bytes(data)


def segment_files(path: Path) -> list[Path]:
    return sorted(path.glob("*.seg"))


def test_listed_records_are_contiguous(shop: Path) -> None:
    """Every byte from the header to the end belongs to a record."""
    code, lines, error = fmq_json("records", shop)
    assert (code, error) == (0, "")
    ends = [line["position"] + aligned(line["size"]) for line in lines]
    assert [line["position"] for line in lines] == [64, *ends[:-1]]
    assert ends[-1] == fmq_json("info", shop).of("directory")[0]["visible_to"]


def test_records_of_a_transaction_show_its_fate(shop: Path) -> None:
    """This holds for its PREPARE and its bodies."""
    lines = fmq_json("records", shop).lines
    fates = {(line["kind"], line["tx_id"], line["fate"]) for line in lines if "fate" in line}
    assert fates == {
        (kind, f"order-{number}", fate)
        for kind in ("PREPARE", "PRE_MESSAGE")
        for number, fate in ((1, "committed"), (2, "rolled back"), (3, "undecided"))
    }


def test_a_reused_tx_id_gives_no_fate_to_the_older_prepare(tmp_path: Path) -> None:
    """After the window of outcomes an id may be used again."""
    clock = FakeClock()
    options = fmq.Options(outcome_window_seconds=10)
    with fmq.open(tmp_path / "d", options, clock=clock, background=False) as engine:
        for body in (b"old", b"new"):
            tx = engine.transaction(tx_id="t1")
            tx.send("t", body)
            tx.prepare()
            if body == b"old":
                tx.rollback()
                clock.advance(11)
    old, new = fmq_json("records", tmp_path / "d", "--kind", "PREPARE").lines
    assert (old.get("fate"), new["fate"]) == (None, "undecided")


def test_a_prepare_says_whether_it_is_bound_to_a_database(tmp_path: Path) -> None:
    connection = connect(tmp_path)
    with fmq.open(tmp_path / "shop", background=False) as engine:
        place(engine, connection, "1", tx_id="bound")
        engine.transaction(tx_id="by hand").prepare()
    connection.close()
    lines = fmq_json("records", tmp_path / "shop", "--kind", "PREPARE").lines
    flags = {line["tx_id"]: set(line["flags"]) for line in lines}
    assert "bound" in flags["bound"]
    assert "bound" not in flags["by hand"]


def test_a_record_is_listed_with_all_but_its_bodies(shop: Path) -> None:
    """Compare records of several kinds with what was sent."""
    lines = fmq_json("records", shop).lines
    by_kind = {line["kind"]: line for line in lines}
    message, published, ack = by_kind["MESSAGE"], by_kind["TX_MESSAGE"], by_kind["ACK"]
    assert (message["topic"], message["queue"], message["offset"]) == ("audit", 0, 0)
    assert (message["count"], message["bytes"]) == (3, 3)
    assert (published["topic"], published["tx_id"]) == ("emails", "order-1")
    assert ack["acks"] == [{"group": "billing", "topic": "audit", "queue": 0, "first": 0, "end": 1}]
    assert by_kind["ROLLBACK"]["decided_by"] == "ada"
    assert by_kind["ROLLBACK"]["reason"] == "ticket 4711"
    assert by_kind["PRE_MESSAGE"]["offset"] is None


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (["--kind", "rollback"], ["ROLLBACK"]),
        (["--tx", "order-1", "--kind", "TX_MESSAGE"], ["TX_MESSAGE"] * 2),
        (["--tx", "order-2"], ["PREPARE", "PRE_MESSAGE", "PRE_MESSAGE", "ROLLBACK"]),
        (["--topic", "audit"], ["TOPIC", "MESSAGE", "CHANGE", "ACK", "TRIED"]),
        (["--limit", "2"], ["TOPIC", "MESSAGE"]),
        (["--limit", "0"], []),
        (["--tx", "order-9"], []),
    ],
)
def test_filters_list_only_the_records_that_they_name(
    shop: Path, filters: list[str], expected: list[str]
) -> None:
    code, lines, _ = fmq_json("records", shop, *filters)
    assert (code, [line["kind"] for line in lines]) == (0, expected)


def test_the_option_from_takes_any_position(segments: Path) -> None:
    """Begin at a record, between two, inside an append, and in a later segment."""
    lines = fmq_json("records", segments).lines
    assert len(segment_files(segments)) > 2
    for start in [line["position"] + more for line in lines for more in (0, 8)]:
        expected = [line for line in lines if line["position"] >= start]
        assert fmq_json("records", segments, "--from", start).lines == expected


def test_listing_records_does_not_disturb_a_live_engine(shop: Path) -> None:
    """All durable records are listed, and no file changes."""
    with fmq.open(shop, background=False) as engine:
        receipt = engine.send("audit", b"d")
        before = contents(shop)
        code, lines, _ = fmq_json("records", shop)
        assert contents(shop) == before
        engine.send("audit", b"e")
    assert (code, lines[-1]["position"]) == (0, receipt.position)


def test_records_before_damage_are_listed_and_damage_is_named(segments: Path) -> None:
    """Flip a bit in the second segment. The error has the file and the position."""
    whole = fmq_json("records", segments).lines
    second = segment_files(segments)[1]
    base = int(second.stem)
    flip(second, 64 + 500)
    code, lines, error = fmq_json("records", segments)
    assert code == 1
    assert lines == [line for line in whole if line["position"] < base]
    assert f"{second.name}, position {base + 64}: " in error


def test_damage_of_durable_bytes_in_the_last_segment_is_reported(segments: Path) -> None:
    """A checkpoint proves them durable, so it is not a torn tail."""
    last = segment_files(segments)[-1]
    flip(last, 64 + 500)
    code, _, error = fmq_json("records", segments)
    assert code == 1
    assert "had been durable" in error


@pytest.mark.parametrize("number", [1, -1])
def test_a_bad_header_does_not_hide_the_segments_before_it(segments: Path, number: int) -> None:
    """The end of the segment before it is found from its own bytes."""
    whole = fmq_json("records", segments).lines
    bad = segment_files(segments)[number]
    flip(bad, 40)
    code, lines, error = fmq_json("records", segments)
    assert code == 1
    assert [line["position"] for line in lines] == [
        line["position"] for line in whole if line["position"] < int(bad.stem)
    ]
    assert bad.name in error


def test_a_missing_segment_is_named(segments: Path) -> None:
    """Records before it are listed."""
    second = segment_files(segments)[1]
    second.unlink()
    code, lines, error = fmq_json("records", segments)
    assert (code, bool(lines)) == (1, True)
    assert f"nothing lies at {int(second.stem)}" in error


def test_a_torn_tail_is_not_reported_as_damage(tmp_path: Path) -> None:
    """Half of the last append of a killed engine is zeros. It is noted, and the exit code is 0."""
    live, killed = tmp_path / "live", tmp_path / "killed"
    with fmq.open(live, background=False) as engine:
        engine.send("t", b"1" * 100)
        last = engine.send("t", b"2" * 100)
        shutil.copytree(live, killed)
    file = segment_files(killed)[0]
    data = file.read_bytes()
    torn = data[: last.position + 90] + bytes(len(data) - last.position - 90)
    file.write_bytes(torn)
    code, lines, error = fmq_json("records", killed)
    assert (code, [line["kind"] for line in lines]) == (0, ["TOPIC", "MESSAGE"])
    assert f"position {last.position}: " in error and "nothing proves it durable" in error


def test_unproven_records_at_the_end_are_listed(
    tmp_path: Path,
) -> None:
    """No decision and no later record proves the prepared transaction durable."""
    live, killed = tmp_path / "live", tmp_path / "killed"
    with fmq.open(live, background=False) as engine:
        tx = engine.transaction(tx_id="t1")
        tx.send("t", b"1")
        tx.prepare()
        shutil.copytree(live, killed)
    prepare = fmq_json("records", killed, "--kind", "PREPARE").lines[0]
    assert (prepare["tx_id"], prepare["fate"]) == ("t1", "not vouched for yet")


def test_control_characters_in_a_reason_are_escaped(tmp_path: Path) -> None:
    with fmq.open(tmp_path / "d", background=False) as engine:
        tx = engine.transaction(tx_id="t1")
        tx.send("t", b"1")
        tx.prepare()
        engine.decide("t1", "rollback", reason="\x1b[2Jgone\r\n[bold]")
    table = fmq_table("records", tmp_path / "d", "--kind", "ROLLBACK")
    assert "\x1b" not in table and "\r" not in table
    shown = "".join(table.split())
    assert "gone" in shown and "[bold]" in shown
