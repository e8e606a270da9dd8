"""An index says where messages lie; as bytes it is believed whole or not at all."""

from __future__ import annotations

import zlib
from contextlib import suppress
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmq.errors import Damaged
from fmq.store.bytes.kinds import Decided, Kind, Run
from fmq.store.index.index import NOWHERE, Lane, SegmentIndex, outcome_key
from fmq.store.index.index_blocks import (
    HEAD_1,
    HEAD_BYTES,
    BadIndex,
    decode_blocks,
    decode_head,
    encode_index,
    encode_unsaved,
    head_size_of,
)
from tests.store.samples import STORE, run_of

BASE = 1 << 33


def run(topic: str, queue: int, offset: int, count: int, place: int, body: int = 0) -> Run:
    """A published run whose record lies at `place`, and its bodies at `body` if elsewhere."""
    published = run_of(Kind.MESSAGE, topic, queue, offset, count, 1_000 + place)
    published.position = BASE + place
    published.body_position = BASE + body if body else 0
    return published


def outcome(tx_id: str, place: int) -> Decided:
    decided = Decided(Kind.COMMIT, 1, tx_id, "", 1, 1, 0, 0, 0, bytes(16))
    decided.position = BASE + place
    return decided


def fill(index: SegmentIndex, random: Random, runs: int, start: int = 64) -> None:
    """Add `runs` runs of a few queues, and an outcome now and then."""
    for i in range(runs):
        place = start + 100 * i
        key = random.choice([("orders", 0), ("orders", 1), ("ä" * 127, 65535)])
        offset = index.lanes[key].next if key in index.lanes else 1 << 40
        body = place - 50 if random.random() < 0.2 else 0
        index.add(run(*key, offset, random.randrange(1, 9), place, body))
        if random.random() < 0.3:
            index.add_outcome(outcome(f"tx-{i % 7}", place + 8))
        index.end = BASE + place + 100


def said(index: SegmentIndex) -> object:
    """All that an index says."""
    lanes = {
        key: {slot: getattr(lane, slot) for slot in Lane.__slots__}
        for key, lane in index.lanes.items()
    }
    return index.base, index.end, lanes, index.outcome_keys, index.outcome_places


@pytest.mark.parametrize("runs", [0, 1, 50])
def test_an_index_decodes_to_what_was_encoded(runs: int) -> None:
    index = SegmentIndex(BASE)
    fill(index, Random(runs), runs)
    assert said(decode_blocks(encode_index(index, STORE), STORE, BASE)) == said(index)


@pytest.mark.parametrize("seed", range(5))
def test_consecutive_blocks_decode_to_the_whole_index(seed: int) -> None:
    """Some of the blocks are empty: nothing came between two checkpoints."""
    random = Random(seed)
    index, data, start = SegmentIndex(BASE), b"", 64
    for _ in range(6):
        runs = random.choice([0, 1, 5, 20])
        fill(index, random, runs, start)
        start += 100 * runs
        data += encode_unsaved(index, STORE)
        index.mark_saved()
        assert said(decode_blocks(data, STORE, BASE)) == said(index), seed
    assert said(decode_blocks(encode_index(index, STORE), STORE, BASE)) == said(index), seed


def test_a_decoded_index_can_be_continued() -> None:
    index = SegmentIndex(BASE)
    fill(index, Random(1), 10)
    data = encode_index(index, STORE)
    again = decode_blocks(data, STORE, BASE)
    for each in (index, again):
        fill(each, Random(2), 10, start=2000)
    data += encode_unsaved(again, STORE)
    assert said(decode_blocks(data, STORE, BASE)) == said(index)


def test_a_flipped_bit_in_an_index_is_refused() -> None:
    index = SegmentIndex(BASE)
    fill(index, Random(0), 6)
    data = encode_unsaved(index, STORE)
    index.mark_saved()
    fill(index, Random(1), 4, start=1000)
    blocks = bytearray(data + encode_unsaved(index, STORE))
    for bit in range(8 * len(blocks)):
        blocks[bit // 8] ^= 1 << bit % 8
        with pytest.raises(BadIndex):
            decode_blocks(bytes(blocks), STORE, BASE)
        blocks[bit // 8] ^= 1 << bit % 8
    decode_blocks(bytes(blocks), STORE, BASE)


def test_a_cut_index_is_refused_unless_it_ends_between_two_blocks() -> None:
    """If it ends between two blocks, its end says how far it covers the segment."""
    index = SegmentIndex(BASE)
    fill(index, Random(0), 6)
    first = encode_unsaved(index, STORE)
    index.mark_saved()
    known_to = index.end
    fill(index, Random(1), 4, start=1000)
    data = first + encode_unsaved(index, STORE)
    for size in range(len(data)):
        if size == len(first):
            assert decode_blocks(data[:size], STORE, BASE).end == known_to < index.end
            continue
        with pytest.raises(BadIndex):
            decode_blocks(data[:size], STORE, BASE)
        if any(data[size:]):
            with pytest.raises(BadIndex):
                decode_blocks(data[:size] + bytes(len(data) - size), STORE, BASE)


def test_the_index_of_another_segment_or_store_is_refused() -> None:
    index = SegmentIndex(BASE)
    fill(index, Random(0), 3)
    data = encode_index(index, STORE)
    for store, base in [(bytes(16), BASE), (STORE, BASE + 8), (STORE, 0)]:
        with pytest.raises(BadIndex, match="another"):
            decode_blocks(data, store, base)


def test_missing_repeated_or_reordered_blocks_are_refused() -> None:
    index = SegmentIndex(BASE)
    blocks = []
    for i in range(3):
        index.add(run("orders", 0, 10 * i, 10, 64 + 100 * i))
        blocks.append(encode_unsaved(index, STORE))
        index.mark_saved()
    for wrong in ([0, 2], [0, 0], [1, 0], [0, 1, 1]):
        with pytest.raises(BadIndex, match="follow"):
            decode_blocks(b"".join(blocks[i] for i in wrong), STORE, BASE)


@given(st.data())
def test_a_forged_index_decodes_or_raises_bad_index(data: st.DataObject) -> None:
    """Its checksums are right, so only its content can give it away."""
    index = SegmentIndex(BASE)
    fill(index, Random(data.draw(st.integers(0, 3))), data.draw(st.integers(0, 5)))
    forged = bytearray(encode_index(index, STORE))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(8, len(forged) - 1))
        forged[at] = data.draw(st.sampled_from([0, 1, 128, 255]) | st.integers(0, 255))
    head_size = int.from_bytes(forged[8:12], "little")
    body = forged[head_size : head_size + int.from_bytes(forged[16:20], "little")]
    forged[12:16] = zlib.crc32(body).to_bytes(4, "little")
    forged[4:8] = zlib.crc32(forged[8:head_size]).to_bytes(4, "little")
    with suppress(BadIndex):
        decode_blocks(bytes(forged), STORE, BASE)


def test_counts_that_do_not_add_up_are_refused() -> None:
    index = SegmentIndex(BASE)
    index.add(run("orders", 0, 0, 10, 64))
    data = bytearray(encode_index(index, STORE))
    head_size = head_size_of(bytes(data))
    data[head_size] = 11
    data[12:16] = zlib.crc32(data[head_size:]).to_bytes(4, "little")
    data[4:8] = zlib.crc32(data[8:head_size]).to_bytes(4, "little")
    with pytest.raises(BadIndex, match="add up"):
        decode_blocks(bytes(data), STORE, BASE)


def test_an_offset_is_found_in_the_run_that_holds_it() -> None:
    index = SegmentIndex(BASE)
    first = (1 << 40) + 3
    sizes = [1, 5, 1, 1, 7, 2]
    offset = first
    for i, size in enumerate(sizes):
        index.add(run("orders", 0, offset, size, 64 + 100 * i))
        offset += size
    lane = index.lanes["orders", 0]
    expected = [i for i, size in enumerate(sizes) for _ in range(size)]
    assert [lane.find(first + i) for i in range(sum(sizes))] == expected
    assert (lane.first, lane.next) == (first, first + sum(sizes))
    assert (lane.first_us, lane.last_us) == (1_064, 1_564)


def test_the_front_of_an_index_says_what_its_segment_holds() -> None:
    """The entries are not needed for it."""
    index = SegmentIndex(BASE)
    fill(index, Random(3), 30)
    data = encode_index(index, STORE)
    size = head_size_of(data[:HEAD_BYTES])
    assert size < len(data)
    head = decode_head(data[:size], 0, STORE, BASE)
    assert {key: summary for key, summary, _, _ in head.lanes} == index.summary()
    with pytest.raises(BadIndex):
        decode_head(data[: size - 1], 0, STORE, BASE)
    for junk in (b"", data[: HEAD_1.size - 1], bytes(200)):
        with pytest.raises(BadIndex):
            head_size_of(junk)


def test_outcomes_of_a_tx_id_come_newest_first() -> None:
    index = SegmentIndex(BASE)
    for place, tx_id in [(100, "a"), (200, "b"), (300, "a")]:
        index.add_outcome(outcome(tx_id, place))
    for known in (index, decode_blocks(encode_index(index, STORE), STORE, BASE)):
        assert known.find_outcomes("a") == [BASE + 300, BASE + 100]
        assert known.find_outcomes("b") == [BASE + 200]
        assert known.find_outcomes("c") == []


def test_decisions_added_after_a_lookup_are_found() -> None:
    index = SegmentIndex(BASE)
    for place, tx_id, expected in [
        (100, "a", [BASE + 100]),
        (200, "b", [BASE + 200]),
        (300, "a", [BASE + 300, BASE + 100]),
        (400, "a", [BASE + 400, BASE + 300, BASE + 100]),
    ]:
        assert BASE + place not in index.find_outcomes(tx_id)
        index.add_outcome(outcome(tx_id, place))
        assert index.find_outcomes(tx_id) == expected


def test_two_tx_ids_with_the_same_key_are_both_returned() -> None:
    """The key is 32 bits of the id. Only the record itself says which id it is."""
    one, other = "plumless", "buckeroo"
    assert outcome_key(one) == outcome_key(other)
    index = SegmentIndex(BASE)
    index.add_outcome(outcome(one, 100))
    index.add_outcome(outcome(other, 200))
    assert index.find_outcomes(one) == index.find_outcomes(other) == [BASE + 200, BASE + 100]


def test_bodies_stored_in_their_records_need_no_column() -> None:
    here, elsewhere = SegmentIndex(BASE), SegmentIndex(BASE)
    for i in range(10):
        here.add(run("orders", 0, i, 1, 1000 + i * 100))
        elsewhere.add(run("orders", 0, i, 1, 1000 + i * 100, body=100 + i))
    assert len(encode_index(elsewhere, STORE)) == len(encode_index(here, STORE)) + 4 * 10


def test_bodies_share_the_column_of_records_until_places_differ() -> None:
    """This also holds for an index that is decoded and then continued."""
    index, key = SegmentIndex(BASE), ("orders", 0)
    index.add(run(*key, 0, 1, 1000))
    blocks = encode_unsaved(index, STORE)
    index.mark_saved()
    assert index.lanes[key].bodies is index.lanes[key].records
    for i, body in enumerate((100, 0, 200), 1):
        index.add(run(*key, i, 1, 1000 + 100 * i, body))
    for each in (index, decode_blocks(blocks + encode_unsaved(index, STORE), STORE, BASE)):
        each.add(run(*key, 4, 1, 1400))
        lane = each.lanes[key]
        assert list(lane.records) == [1000, 1100, 1200, 1300, 1400]
        assert list(lane.bodies) == [1000, 100, 1200, 200, 1400]


def test_offsets_more_than_32_bits_apart_in_a_segment_are_indexed() -> None:
    """A record may hold 16 million messages, so offsets in one segment can be that far apart."""
    index = SegmentIndex(BASE)
    for i in range(300):
        index.add(run("orders", 0, i << 24, 1 << 24, 64 + 100 * i))
    again = decode_blocks(encode_index(index, STORE), STORE, BASE)
    assert said(again) == said(index)
    assert again.lanes["orders", 0].find((299 << 24) + 5) == 299


def test_runs_keep_their_offsets_around_a_missing_run() -> None:
    index = SegmentIndex(BASE)
    index.add(run("t", 0, 3, 2, 100))
    index.add(run("t", 0, 9, 1, 300))
    lane = index.lanes["t", 0]
    assert [lane.first + start for start in lane.starts] == [3, 5, 9]
    assert lane.bodies.tolist()[1] == lane.records.tolist()[1] == NOWHERE
    assert lane.next == 10


@pytest.mark.parametrize("offset", [0, 4, 1 << 62, (1 << 64) - 1])
def test_a_run_at_an_impossible_offset_is_refused_as_damaged(offset: int) -> None:
    """The index does not grow for it."""
    index = SegmentIndex(BASE)
    index.add(run("t", 0, 3, 2, 100))
    with pytest.raises(Damaged, match=r"second record|far off"):
        index.add(run("t", 0, offset, 1, 300))
    assert len(index.lanes["t", 0].counts) == 1


def test_a_block_that_ends_before_its_predecessor_is_refused() -> None:
    index = SegmentIndex(BASE)
    index.end = BASE + 200
    older = encode_unsaved(index, STORE)
    index.add(run("t", 0, 0, 2, 100))
    index.end = BASE + 400
    with pytest.raises(BadIndex, match="in front of it"):
        decode_blocks(encode_index(index, STORE) + older, STORE, BASE)
