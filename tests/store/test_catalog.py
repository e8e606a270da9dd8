"""The sealed segments' indexes: which one holds an offset, and what if it is not there."""

from __future__ import annotations

import errno
import itertools
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import pytest

from fmq.machine.disk import Disk
from fmq.store.bytes.kinds import Run
from fmq.store.index import catalog as catalog_module
from fmq.store.index.catalog import KEYS_MAX, LOADED_MAX, SUFFIX, Catalog
from fmq.store.index.index import SegmentIndex
from fmq.store.index.index_blocks import encode_index
from fmq.store.index.index_file import FRONT_BYTES
from fmq.store.journal.segment import segment_name
from fmq.testing import CrashDisk, FaultDisk, PowerLoss
from tests.store.journals import directory_of, files_of
from tests.store.lines import Lines
from tests.store.samples import STORE
from tests.store.test_index import outcome, run, said

CAPACITY = 4096


def index_at(base: int, runs: list[tuple[str, int, int, int]]) -> SegmentIndex:
    """The index of the segment at `base`: runs of (topic, queue, offset, count), one by one."""
    index = SegmentIndex(base)
    for i, (topic, queue, offset, count) in enumerate(runs):
        published: Run = run(topic, queue, offset, count, 0)
        published.position = published.body_position = base + 64 + 50 * i
        index.add(published)
    index.end = base + CAPACITY
    return index


def decided_at(index: SegmentIndex, tx_id: str, place: int) -> None:
    decided = outcome(tx_id, 0)
    decided.position = index.base + place
    index.add_outcome(decided)


class Sealed:
    """A catalog over segments that exist as indexes only, and what it had to build again."""

    def __init__(
        self, indexes: list[SegmentIndex], disk: Disk | None = None, keys_max: int = KEYS_MAX
    ) -> None:
        self.disk: Any = disk or CrashDisk()
        self.directory = directory_of(self.disk)
        self.keys_max = keys_max
        self.while_rebuilding: Callable[[int], object] = id
        self.indexes = {index.base: index for index in indexes}
        self.rebuilt: list[int] = []
        self.catalog = self.reopened()
        for index in indexes:
            self.catalog.write(index)

    def reopened(self) -> Catalog:
        catalog = Catalog(self.directory, STORE, self._rebuild, self.keys_max)
        for base in sorted(self.indexes):
            catalog.add(base)
        return catalog

    def _rebuild(self, base: int) -> SegmentIndex:
        self.rebuilt.append(base)
        self.while_rebuilding(base)
        return self.indexes[base]

    def spoil(self, base: int, data: bytes | None) -> None:
        """Replace the index file by `data`. None: remove it."""
        name = segment_name(base, SUFFIX)
        self.directory.remove(name)
        if data is not None:
            self.directory.create(name).write(0, (data,), sync=True)


def ten_segments() -> list[SegmentIndex]:
    """Segments of 10 messages each of orders/0, which lies in all but the second and fifth;
    rare/1 lies in the fourth alone.
    """
    indexes, offset = [], 5
    for number in range(10):
        runs = []
        if number not in (1, 4):
            runs = [("orders", 0, offset, 4), ("orders", 0, offset + 4, 6)]
            offset += 10
        if number == 3:
            runs.append(("rare", 1, 0, 3))
        indexes.append(index_at(number * CAPACITY, runs))
    return indexes


def test_every_offset_is_found_in_the_segment_that_holds_it() -> None:
    sealed = Sealed(ten_segments())
    expected = [
        index.base
        for index in sealed.indexes.values()
        for lane in [index.lanes.get(("orders", 0))]
        if lane
        for _ in range(lane.first, lane.next)
    ]
    found = [sealed.catalog.find(("orders", 0), offset) for offset in range(5, 85)]
    assert [index.base for index in found if index] == expected
    assert sealed.rebuilt == []


def test_an_offset_that_no_sealed_segment_holds_is_not_found() -> None:
    catalog = Sealed(ten_segments()).catalog
    for key, offset in [
        (("orders", 0), 4),
        (("orders", 0), 85),
        (("orders", 1), 5),
        (("rare", 1), 3),
        (("unheard of", 0), 0),
    ]:
        assert catalog.find(key, offset) is None, (key, offset)
    rare = catalog.find(("rare", 1), 2)
    assert rare is not None
    assert rare.base == 3 * CAPACITY


def test_an_empty_catalog_finds_nothing() -> None:
    catalog = Sealed([]).catalog
    assert catalog.find(("orders", 0), 0) is None
    assert [*catalog.find_outcomes("x")] == []
    assert catalog.bases() == []


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda data: None, id="missing"),
        pytest.param(lambda data: b"", id="empty"),
        pytest.param(lambda data: bytes(len(data)), id="zeros"),
        pytest.param(lambda data: data[:-1], id="a byte short"),
        pytest.param(lambda data: data[:64], id="without its table"),
        pytest.param(lambda data: data[:70], id="half a table"),
        pytest.param(lambda data: data + b"x", id="a byte long"),
        pytest.param(lambda data: data[:40] + b"\xff" + data[41:], id="of another store"),
        pytest.param(lambda data: data[:-3] + b"\xff" + data[-2:], id="a wrong entry"),
        pytest.param(lambda data: data[:8] + b"\xff\xff\xff\x7f" + data[12:], id="a huge table"),
    ],
)
@pytest.mark.parametrize("ask", ["find", "summary", "index", "outcomes"])
def test_a_missing_or_damaged_index_is_built_again(damage, ask: str) -> None:
    """Build it again whichever question comes first. All later answers are right."""
    indexes = ten_segments()
    base = 3 * CAPACITY
    decided_at(indexes[3], "tx", 900)
    sealed = Sealed(indexes)
    sealed.spoil(base, damage(encode_index(indexes[3], STORE)))
    catalog = sealed.reopened()
    if ask == "summary":
        assert catalog.summary(base) == indexes[3].summary()
    elif ask == "index":
        assert said(catalog.index(base)) == said(indexes[3])
    elif ask == "outcomes":
        assert [*catalog.find_outcomes("tx")] == [base + 900]
    for offset in (25, 34):
        found = catalog.find(("orders", 0), offset)
        assert found is not None
        assert said(found) == said(indexes[3])
    assert set(sealed.rebuilt) == {base}
    assert catalog.rebuilt == len(sealed.rebuilt) == 1


def test_a_flipped_bit_in_an_index_gives_no_wrong_answer() -> None:
    """The answer comes from the index file where that is sound, and else from the segment."""
    indexes = ten_segments()[:2]
    data = bytearray(encode_index(indexes[0], STORE))
    sealed = Sealed(indexes)
    for bit in range(8 * len(data)):
        data[bit // 8] ^= 1 << bit % 8
        sealed.spoil(0, bytes(data))
        data[bit // 8] ^= 1 << bit % 8
        catalog = sealed.reopened()
        for offset in (5, 14):
            found = catalog.find(("orders", 0), offset)
            assert found is not None, bit
            assert said(found) == said(indexes[0]), bit
        assert catalog.find(("orders", 0), 15) is None


def test_a_table_longer_than_the_first_read_is_read_whole() -> None:
    topics = [f"topic {i:03d} {'x' * 200}" for i in range(60)]
    sealed = Sealed([index_at(0, [(topic, 0, 7, 2) for topic in topics])])
    assert len(encode_index(sealed.indexes[0], STORE)) > FRONT_BYTES
    catalog = sealed.reopened()
    for topic in topics:
        assert catalog.find((topic, 0), 8) is not None
        assert catalog.find((topic, 0), 9) is None
    assert sealed.rebuilt == []


def test_dropped_segments_are_not_found_and_all_others_are() -> None:
    for looked_before in (False, True):
        sealed = Sealed(ten_segments())
        catalog = sealed.catalog
        if looked_before:
            catalog.find(("orders", 0), 5)
        for dropped in range(1, 10):
            catalog.drop((dropped - 1) * CAPACITY)
            assert catalog.bases() == [n * CAPACITY for n in range(dropped, 10)]
            for offset in range(5, 85):
                found = catalog.find(("orders", 0), offset)
                holder = next(
                    (
                        index.base
                        for index in sealed.indexes.values()
                        if (lane := index.lanes.get(("orders", 0)))
                        and lane.first <= offset < lane.next
                        and index.base >= dropped * CAPACITY
                    ),
                    None,
                )
                assert (found.base if found else None) == holder, (looked_before, dropped, offset)


def interrupted(work: Callable[[], object], at: int) -> bool:
    """Do `work` up to its line number `at` in the catalog; whether it came to that."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    try:
        Lines(catalog_module, at, interrupt).run(work)
    except KeyboardInterrupt:
        return True
    return False


@pytest.mark.parametrize("unread", [False, True])
def test_an_interrupted_lookup_loses_and_repeats_no_segment(unread: bool) -> None:
    """Interrupt at every line. With `unread`, an earlier lookup could not read one segment.

    Segments that are dropped afterwards leave nothing in memory.
    """
    keys = [(topic, queue) for topic in "abc" for queue in (0, 1)]
    for at in itertools.count():
        runs = [(topic, queue, 0, 4) for topic, queue in keys]
        sealed = Sealed([index_at(number * CAPACITY, [
            (topic, queue, 4 * number, count) for topic, queue, _, count in runs
        ]) for number in range(4)])  # fmt: skip
        catalog = sealed.catalog
        if unread:
            sealed.spoil(CAPACITY, None)

            def refuse(base: int) -> None:
                raise OSError(errno.EIO, "not now")

            sealed.while_rebuilding = refuse
            assert catalog.find(("a", 0), 0) is not None
            sealed.while_rebuilding = id
        met = interrupted(partial(catalog.find, ("a", 0), 5), at)
        for number in range(4):
            for key in keys:
                found = catalog.find(key, 4 * number + 1)
                assert found is not None, (at, key)
                assert found.base == number * CAPACITY, (at, key)
        for dropped in range(4):
            assert {len(pairs) for pairs in catalog._lanes.values()} == {4 - dropped}, at
            catalog.drop(dropped * CAPACITY)
            for key in keys:
                assert catalog.find(key, 4 * dropped + 1) is None, (at, key)
        if not met:
            break
    assert at > 20


def test_an_interrupted_drop_hides_no_segment_sealed_later() -> None:
    """What is left of the dropped segment is removed with the next one."""
    for at in itertools.count():
        sealed = Sealed(ten_segments())
        catalog = sealed.reopened()
        assert catalog.find(("orders", 0), 84) is not None
        met = interrupted(partial(catalog.drop, 0), at)
        if catalog.bases()[0] == 0:
            catalog.drop(0)
        later = index_at(10 * CAPACITY, [("orders", 0, 85, 5)])
        catalog.write(later)
        catalog.add(later.base)
        found = catalog.find(("orders", 0), 87)
        assert found is not None, at
        assert found.base == later.base, at
        catalog.drop(CAPACITY)
        catalog.drop(2 * CAPACITY)
        assert {base for pairs in catalog._lanes.values() for _, base in pairs} <= {
            *catalog.bases()
        }, at
        if not met:
            break
    assert at > 5


def test_segments_sealed_later_are_found_too() -> None:
    indexes = ten_segments()
    sealed = Sealed(indexes[:5])
    assert sealed.catalog.find(("orders", 0), 84) is None
    for index in indexes[5:]:
        sealed.catalog.write(index)
        sealed.catalog.add(index.base)
    found = sealed.catalog.find(("orders", 0), 84)
    assert found is not None
    assert found.base == 9 * CAPACITY


def test_segments_sealed_after_others_were_dropped_are_found() -> None:
    indexes = ten_segments()
    sealed = Sealed(indexes[:9])
    assert sealed.catalog.find(("orders", 0), 5) is not None
    for base in (0, CAPACITY):
        sealed.catalog.drop(base)
    sealed.catalog.write(indexes[9])
    sealed.catalog.add(9 * CAPACITY)
    found = sealed.catalog.find(("orders", 0), 84)
    assert found is not None
    assert found.base == 9 * CAPACITY


def test_only_a_few_indexes_stay_in_memory() -> None:
    sealed = Sealed([index_at(n * CAPACITY, [("orders", 0, n, 1)]) for n in range(50)])
    catalog = sealed.reopened()
    random = Random(1)
    for _ in range(200):
        offset = random.randrange(50)
        found = catalog.find(("orders", 0), offset)
        assert found is not None
        assert found.base == offset * CAPACITY
        assert len(catalog._loaded) <= LOADED_MAX


def test_outcomes_of_several_segments_come_newest_first() -> None:
    indexes = ten_segments()
    for number in (2, 7):
        for place in (100, 300):
            decided_at(indexes[number], "again", place)
    decided_at(indexes[4], "once", 200)
    catalog = Sealed(indexes).catalog
    assert [*catalog.find_outcomes("again")] == [
        number * CAPACITY + place for number in (7, 2) for place in (300, 100)
    ]
    assert [*catalog.find_outcomes("once")] == [4 * CAPACITY + 200]
    assert [*catalog.find_outcomes("never")] == []
    for dropped in range(5):
        catalog.drop(dropped * CAPACITY)
    assert [*catalog.find_outcomes("once")] == []
    assert len([*catalog.find_outcomes("again")]) == 2


def deciding_segments(count: int, each: int = 1) -> list[SegmentIndex]:
    """Segments in which `each` transactions were decided, "tx 0" and so on."""
    indexes = [index_at(number * CAPACITY, []) for number in range(count)]
    for number in range(count * each):
        decided_at(indexes[number // each], f"tx {number}", 64 + number % each * 48)
    return indexes


def test_searches_for_decisions_read_each_index_only_once() -> None:
    """Only the index that has the decision is read again."""
    disk = FaultDisk(CrashDisk())
    catalog = Sealed(deciding_segments(600), disk).reopened()
    opened = disk.count("open", names="*.idx")
    assert [*catalog.find_outcomes("never")] == []
    assert disk.count("open", names="*.idx") == opened + 600
    for _ in range(3):
        assert [*catalog.find_outcomes("never")] == []
    assert disk.count("open", names="*.idx") == opened + 600
    assert [*catalog.find_outcomes("tx 7")] == [7 * CAPACITY + 64]
    assert disk.count("open", names="*.idx") == opened + 601


def test_only_the_front_of_an_index_without_decisions_is_read() -> None:
    entries = FRONT_BYTES  # of 8 bytes each
    for decisions, reads in (0, 1), (1, 2):
        disk = FaultDisk(CrashDisk())
        index = index_at(0, [("orders", 0, offset, 1) for offset in range(entries)])
        if decisions:
            decided_at(index, "T", 64)
        catalog = Sealed([index], disk).reopened()
        before = disk.count("read", names="*.idx")
        assert len([*catalog.find_outcomes("T")]) == decisions
        assert disk.count("read", names="*.idx") == before + reads


def test_over_the_limit_only_keys_of_the_newest_segments_are_kept() -> None:
    """They stay in memory however often the other indexes are read."""
    disk = FaultDisk(CrashDisk())
    catalog = Sealed(deciding_segments(10, each=5), disk, keys_max=32).reopened()
    for _ in range(3):
        before = disk.count("open", names="*.idx")
        assert [*catalog.find_outcomes("never")] == []
    assert disk.count("open", names="*.idx") == before + 4
    for number in range(50):
        assert [*catalog.find_outcomes(f"tx {number}")] == [
            number // 5 * CAPACITY + 64 + number % 5 * 48
        ]
    kept = sorted(catalog._keys)
    assert kept == [number * CAPACITY for number in range(4, 10)]
    assert catalog._kept_keys == 30
    for number in range(10):
        catalog.drop(number * CAPACITY)
    assert catalog._kept_keys == 0


def test_keys_of_a_new_segment_replace_those_of_the_oldest() -> None:
    indexes = deciding_segments(10, each=5)
    sealed = Sealed(indexes[:9], keys_max=32)
    assert [*sealed.catalog.find_outcomes("never")] == []
    sealed.catalog.write(indexes[9])
    sealed.catalog.add(9 * CAPACITY)
    assert [*sealed.catalog.find_outcomes("tx 49")] == [9 * CAPACITY + 64 + 4 * 48]
    assert sorted(sealed.catalog._keys) == [number * CAPACITY for number in range(4, 10)]


def test_a_search_for_a_decision_does_not_block_readers() -> None:
    """Method: read from inside the search, where an unreadable index is built again."""
    indexes = ten_segments()
    decided_at(indexes[3], "T", 900)
    disk = FaultDisk(CrashDisk())
    sealed = Sealed(indexes, disk)
    found = []

    def read(base: int) -> None:
        assert not sealed.catalog.lock.is_taken(), "readers would wait"
        disk.heal()
        found.append(sealed.catalog.find(("orders", 0), 84))

    sealed.while_rebuilding = read
    disk.fail("read", nth=5, error=errno.EIO, names="*.idx")
    assert [*sealed.catalog.find_outcomes("T")] == [3 * CAPACITY + 900]
    assert len(sealed.rebuilt) == len(found) == 1
    assert found[0] is not None


def test_a_segment_dropped_during_a_search_for_a_decision_is_skipped() -> None:
    indexes = deciding_segments(3)
    sealed = Sealed(indexes)

    def drop(base: int) -> None:
        sealed.catalog.drop(base)
        raise FileNotFoundError

    sealed.while_rebuilding = drop
    sealed.spoil(0, None)
    assert [*sealed.catalog.find_outcomes("tx 0")] == []
    assert [*sealed.catalog.find_outcomes("tx 2")] == [2 * CAPACITY + 64]


def test_a_flipped_bit_in_an_index_hides_no_decision() -> None:
    index = ten_segments()[0]
    for number in range(3):
        decided_at(index, f"T{number}", 600 + 100 * number)
    data = bytearray(encode_index(index, STORE))
    sealed = Sealed([index])
    for bit in range(8 * len(data)):
        data[bit // 8] ^= 1 << bit % 8
        sealed.spoil(0, bytes(data))
        data[bit // 8] ^= 1 << bit % 8
        catalog = sealed.reopened()
        assert [[*catalog.find_outcomes(f"T{number}")] for number in range(4)] == [
            [600], [700], [800], []
        ], bit  # fmt: skip


def test_a_power_loss_leaves_an_index_file_whole_or_absent() -> None:
    """The power fails at every operation. Writing the index again makes it whole and durable."""
    index = ten_segments()[0]
    whole = Sealed([index])
    name = segment_name(0, SUFFIX)
    for crash_at in range(2, whole.disk.operations):
        disk = CrashDisk(crash_at)
        with pytest.raises(PowerLoss):
            Sealed([index], disk)
        for state in disk.states():
            left = files_of(state)
            assert left.get(name) in (None, encode_index(index, STORE)), state.loss
            again = Sealed([index], state)
            for after in again.disk.states():
                assert files_of(after)[name] == encode_index(index, STORE), (state.loss, after.loss)
