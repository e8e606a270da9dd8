"""On a damaged directory, a strict read raises or is right, and a permissive one is never wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from fmq.errors import FmqError, NewerFormat
from fmq.store.bytes.record import aligned
from fmq.store.journal.segment import HEADER_BYTES, decode_header
from tests.budget import SEED, within_budget
from tests.story import Files
from tests.table.wounds import VIEWS, Row, Whole, closed, killed, rows_of, shipped, wounds

SEEDS = range(SEED, SEED + within_budget(1))
WHOLES: dict[str, Callable[[], Whole]] = {"closed": closed, "killed": killed, "shipped": shipped}


@pytest.fixture(params=WHOLES)
def whole(request: pytest.FixtureRequest) -> Whole:
    return WHOLES[request.param]()


@pytest.mark.parametrize("seed", SEEDS)
def test_strict_mode_raises_or_gives_exactly_the_right_rows(whole: Whole, seed: int) -> None:
    """Whichever file is damaged, an error names it, or all rows are there and right.

    After a kill, damage of the only proof that the last append was durable may change what is said
    of that append: the engine decides about it.
    """
    refused = 0
    for wound, files in wounds(whole, seed, 60):
        for view in VIEWS:
            told, found = None, list[Row]()
            try:
                found = rows_of(files, view)
            except FmqError as error:
                told = str(error)
                refused += 1
            if told is not None:
                assert "data/" in told, wound
            elif found != whole.rows[view]:
                assert whole.vouches(wound), wound
                expected = before_last_append(whole, view, whole.rows[view])
                assert before_last_append(whole, view, found) == expected, wound
    assert refused > 10


def before_last_append(whole: Whole, view: str, rows: Sequence[Row]) -> list[Row]:
    """The rows that the last append says nothing of."""
    last = [row for row in whole.rows["records"] if row["append"] == whole.last_append]
    touched = {row["tx_id"] for row in last if row["tx_id"]}
    if view == "transactions":
        return [row for row in rows if row["tx_id"] not in touched]
    return [row for row in rows if row["position"] < whole.last_append]


@pytest.mark.parametrize("seed", SEEDS)
def test_permissive_mode_gives_no_wrong_row_and_lists_the_damage(whole: Whole, seed: int) -> None:
    """No read raises, and all rows are among the right ones, in their order.

    Records and damage together cover every record of every segment.
    """
    some_damage = 0
    for wound, files in wounds(whole, seed, 60):
        damage = rows_of(files, "damage")
        for view in VIEWS:
            found = rows_of(files, view, permissive=True)
            if whole.vouches(wound):
                found = before_last_append(whole, view, found)
            assert is_part(found, whole.rows[view]), f"{wound}: {view}"
            if view == "records":
                missing = uncovered(whole, found, damage)
                if whole.vouches(wound):
                    missing = [at for at in missing if at < whole.last_append]
                assert not missing, f"{wound}: {missing}, {damage}"
        some_damage += bool(damage)
        assert all(row["reason"] and row["path"] == "data" for row in damage), wound
    assert some_damage > 5


def is_part(found: Sequence[Row], truth: Sequence[Row]) -> bool:
    rest = iter(truth)
    return all(row in rest for row in found)


def uncovered(whole: Whole, records: Sequence[Row], damage: Sequence[Row]) -> list[int]:
    """Positions of records that neither are rows nor lie in a stretch that is left out.

    Where the journal ended nobody knows if it is the end that is missing.
    """
    there = {row["position"] for row in records}
    stretches = [(row["position"], row["position"] + row["skipped_bytes"]) for row in damage]
    last = whole.segments[-1]
    stretches += [(row["position"], 1 << 62) for row in damage if row["segment"] == last]
    return [
        row["position"]
        for row in whole.rows["records"]
        if row["position"] not in there
        and not any(start <= row["position"] < end for start, end in stretches)
    ]


# --- one thing at a time ----------------------------------------------------------------------


def damaged(whole: Whole, name: str, place: int) -> Files:
    data = bytearray(whole.files[name])
    data[place] ^= 0x10
    return {**whole.files, name: bytes(data)}


def test_rows_before_the_damage_in_a_segment_are_given() -> None:
    """So are those of other segments. The view `damage` states place, length and reason."""
    whole = closed()
    name = whole.segments[1]
    base = int(name[:20])
    inside = [row for row in whole.rows["records"] if row["segment"] == name]
    broken = inside[len(inside) // 2]
    files = damaged(whole, name, broken["position"] - base + 8)
    (row,) = rows_of(files, "damage")
    assert (row["segment"], row["position"]) == (name, broken["append"])
    last = inside[-1]
    assert row["skipped_bytes"] == last["position"] + aligned(last["size"]) - broken["append"]
    assert "checksum" in row["reason"]
    expected = [
        row
        for row in whole.rows["records"]
        if row["segment"] != name or row["position"] < broken["append"]
    ]
    assert rows_of(files, "records", permissive=True) == expected
    before = [row for row in whole.rows["messages"] if row["position"] < broken["append"]]
    assert rows_of(files, "messages", permissive=True)[: len(before)] == before


def test_a_missing_segment_is_named_with_its_length() -> None:
    whole = closed()
    name = whole.segments[1]
    files = {key: data for key, data in whole.files.items() if key != name}
    with pytest.raises(FmqError, match=f"data/{name}, position {int(name[:20])}: the segment is m"):
        rows_of(files, "messages")
    rows = rows_of(files, "damage")
    size = decode_header(whole.files[name], name).capacity
    assert (rows[-1]["segment"], rows[-1]["position"]) == (name, int(name[:20]))
    assert rows[-1]["skipped_bytes"] == size


def test_a_damaged_header_leaves_out_its_segment_and_no_other() -> None:
    """Only its own bytes tell the end of the segment before it."""
    whole = shipped()
    name = whole.segments[1]
    files = damaged(whole, name, 20)
    (row,) = rows_of(files, "damage")
    assert (row["segment"], row["reason"]) == (name, "the header's checksum does not match")
    others = [row for row in whole.rows["records"] if row["segment"] != name]
    assert rows_of(files, "records", permissive=True) == others


def test_a_missing_last_segment_known_to_a_checkpoint_is_damage() -> None:
    """The checkpoint knows what the segment held."""
    whole = closed()
    files = {key: data for key, data in whole.files.items() if key != whole.segments[-1]}
    with pytest.raises(FmqError, match=r"missing|shorter than promised"):
        rows_of(files, "messages")
    (row,) = rows_of(files, "damage")
    assert row["segment"] == whole.segments[-1]
    assert "the checkpoint knows" in row["reason"]
    assert row["skipped_bytes"] > 0


def test_a_newer_segment_is_refused_by_name() -> None:
    """Permissive mode leaves it out and gives that reason."""
    whole = shipped()
    name = whole.segments[1]
    files = {**whole.files, name: as_format_3(whole.files[name])}
    with pytest.raises(NewerFormat, match=f"data/{name}.*format 3 is newer than this fmq"):
        rows_of(files, "messages")
    (row,) = rows_of(files, "damage")
    assert (row["segment"], row["reason"]) == (name, "format 3 is newer than this fmq understands")
    assert row["skipped_bytes"] == len(whole.files[name])


def as_format_3(data: bytes) -> bytes:
    from zlib import crc32

    header = bytearray(data[:HEADER_BYTES])
    header[8] = 3
    header[4:8] = crc32(header[8:]).to_bytes(4, "little")
    return bytes(header) + data[HEADER_BYTES:]


def test_a_newer_record_is_refused_by_position() -> None:
    """Its kind is unknown and its checksum is right."""
    from zlib import crc32

    whole = shipped()
    name = whole.segments[1]
    base = int(name[:20])
    [row, *_] = [row for row in whole.rows["records"] if row["segment"] == name]
    at = row["position"] - base
    data = bytearray(whole.files[name])
    data[at + 32] = 99
    head_size = int.from_bytes(data[at + 12 : at + 16], "little")
    store = decode_header(bytes(data), name).store
    data[at + 4 : at + 8] = crc32(data[at + 8 : at + head_size], crc32(store)).to_bytes(4, "little")
    files = {**whole.files, name: bytes(data)}
    for view in ("records", "messages"):
        with pytest.raises(NewerFormat, match=f"position {row['position']}: a record of kind 99"):
            rows_of(files, view)
    (left_out,) = rows_of(files, "damage")
    assert left_out["reason"] == "a record of kind 99 is newer than this fmq understands"


@pytest.mark.parametrize("spoil", [lambda data: bytes(len(data)), as_format_3])
def test_a_directory_without_a_readable_header_is_all_damage(
    spoil: Callable[[bytes], bytes],
) -> None:
    files = {name: spoil(data) for name, data in shipped().files.items()}
    for view in VIEWS:
        assert rows_of(files, view, permissive=True) == []
    assert len(rows_of(files, "damage")) == 1
