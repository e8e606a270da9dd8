"""Directories written by the first fmq of each format version open, and show what they did then.

They lie in tests/data, made once by tests/data/make_golden.py; what each holds is spelled out
in the expected.json beside them, every message with every field. Whoever changes what is read
here has changed the format, and needs a new version of it and a directory more. What a version
learns later needs a directory beside its first: `v1-bound` has what came after `v1`.
"""

from __future__ import annotations

import json
import re
import shutil
import zlib
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

import fmq
from fmq.posix import RealDisk
from fmq.recovery import checkpoint
from fmq.recovery.layout import look, read_header
from fmq.store.bytes.columns import COMPRESSED, HEADERS, KEYS, LENGTHS, TAGS
from fmq.store.bytes.dead_column import failures_in
from fmq.store.bytes.decoding import columns_of, decode, durable_to_of, with_bodies
from fmq.store.bytes.encoding import size_of
from fmq.store.bytes.erased_columns import erase
from fmq.store.bytes.extension import decode_extension
from fmq.store.bytes.internal import broadcast_group
from fmq.store.bytes.kinds import (
    HAS_ERASED,
    Carryover,
    Changed,
    ChangeKind,
    Decided,
    Kind,
    Prepare,
    Record,
    Run,
)
from fmq.store.bytes.record import BOUND, EXTENDED, MAGIC_1, aligned
from fmq.store.bytes.timing import timing_in
from fmq.store.journal.scan import Scan
from fmq.store.journal.segment import HEADER_BYTES, segment_name
from fmq.testing import FakeClock
from fmq.testing.inside import inside
from tests.data.story_v2 import CLIENT, LONG
from tests.golden import DATA, EXPECTED, Seen, handed_out, published, seen
from tests.store.samples import encoded

VERSIONS = sorted(place.name for place in DATA.glob("v*"))
FIRST_OF_THEIRS = [version for version in VERSIONS if "-" not in version]
GOLDEN = [
    (version, life.name)
    for version in VERSIONS
    for life in sorted((DATA / version).iterdir())
    if life.is_dir()
]
WITH_TIMES = [each for each in GOLDEN if each[0].startswith("v2")]
KINDS = {"v1": {kind for kind in Kind if kind < Kind.MARK}, "v2": {*range(1, 15), 16}}
STORE = slice(16, 32)  # where a segment's header has the store's UUID
DERIVED = ("*.idx", "*.part", "*.spare", "checkpoint.*")
DERIVED_SINCE_V2 = ("*.keys", "*.due")
FORMAT_MD = Path(__file__).parents[1] / "docs" / "format.md"
LATER = ("clock_us", "handed out", "due")  # what an expected.json has beside what is seen at once

# As when they were made: a segment of the same size may follow.
OPTIONS = fmq.Options(segment_bytes=4096)

golden = pytest.mark.parametrize(("version", "life"), GOLDEN)
golden_with_times = pytest.mark.parametrize(("version", "life"), WITH_TIMES)


def expected(version: str, life: str) -> Seen:
    found: Seen = json.loads((DATA / version / EXPECTED).read_text(encoding="utf-8"))
    return found[life]  # type: ignore[no-any-return]


def at_once(wanted: Seen) -> Seen:
    return {what: wanted[what] for what in wanted if what not in LATER}


def opened(place: Path, wanted: Seen, clock: FakeClock | None = None) -> fmq.Engine:
    """Open a directory at the end of its story, if that says when it was, or at the time of
    `clock`. What waits for a time must not come because the real time is later.
    """
    if "clock_us" not in wanted:
        return fmq.open(place, OPTIONS)
    clock = clock or at_the_end(wanted)
    return fmq.open(place, OPTIONS, clock=clock, background=False)


def at_the_end(wanted: Seen) -> FakeClock:
    return FakeClock(wanted["clock_us"])


def copied(version: str, life: str, tmp_path: Path) -> Path:
    """A copy to write in; the golden directory itself is for looking only."""
    return Path(shutil.copytree(DATA / version / life, tmp_path / "data"))


def files(place: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in place.iterdir() if each.is_file()}


def appends(place: Path) -> Iterator[Sequence[Record]]:
    """All appends of a directory, as they lie there."""
    directory = RealDisk().directory(str(place), make=False)
    for base in look(directory).bases:
        header = read_header(directory, base)
        file = directory.open(segment_name(base))
        start, limit = base + HEADER_BYTES, base + header.capacity
        yield from Scan(file, base, limit, start, zlib.crc32(header.store))
        file.close()
    directory.close()


def records(place: Path) -> Iterator[Record]:
    return (record for append in appends(place) for record in append)


def kinds_of(place: Path) -> set[tuple[str, ...]]:
    """Of each append the kinds of its records, one after the other; those that are alike once."""
    return {
        tuple(name for name, _ in groupby(Kind(record.kind).name for record in append))
        for append in appends(place)
    }


def test_every_format_version_so_far_has_its_golden_directory() -> None:
    assert [
        *("v1", "v1-bound", "v2", "v2-codecs", "v2-erased", "v2-holes", "v2-joint", "v2-limits"),
        *("v2-options", "v2-pauses", "v2-schedules"),
    ] == VERSIONS
    assert [f"{version}/{life}" for version, life in GOLDEN] == [
        *("v1/closed", "v1/killed", "v1-bound/closed"),
        *(
            "v2/closed",
            "v2/killed",
            "v2-codecs/closed",
            "v2-erased/closed",
            "v2-holes/closed",
            "v2-joint/closed",
            "v2-limits/closed",
            "v2-options/closed",
            "v2-pauses/closed",
            "v2-schedules/closed",
        ),
    ]


@golden
def test_a_golden_directory_is_sound_and_its_tail_is_counted(version: str, life: str) -> None:
    report = fmq.check(DATA / version / life)
    assert report.problems == ()
    assert report.tail_bytes == (100 if life == "killed" else 0)


@golden
def test_a_read_only_engine_shows_the_expected_content(version: str, life: str) -> None:
    """It reads the golden directory itself, and changes nothing in it."""
    place, wanted = DATA / version / life, expected(version, life)
    before = files(place)
    with fmq.open(place, OPTIONS, read_only=True) as engine:
        found = seen(engine, wanted)
    assert found == {what: wanted[what] for what in found}
    assert files(place) == before


@golden
def test_an_engine_shows_the_expected_content(version: str, life: str, tmp_path: Path) -> None:
    """It does so at once, and after the directory was closed and opened again."""
    wanted = expected(version, life)
    place = copied(version, life, tmp_path)
    for clean in (life == "closed", True):
        with opened(place, wanted) as engine:
            assert seen(engine, wanted) == at_once(wanted)
            report = engine.stats().recovery
            assert (report.clean, report.cut_bytes) == (clean, 0 if clean else 100)
        assert fmq.check(place).problems == ()


@golden
def test_derived_files_can_be_missing(version: str, life: str, tmp_path: Path) -> None:
    """The current code builds indexes and checkpoints from the segments alone."""
    wanted = expected(version, life)
    place = copied(version, life, tmp_path)
    remove_derived(place)
    with opened(place, wanted) as engine:
        assert seen(engine, wanted) == at_once(wanted)


def remove_derived(place: Path) -> None:
    for pattern in DERIVED + DERIVED_SINCE_V2:
        for file in place.glob(pattern):
            file.unlink()


@golden
def test_a_golden_directory_can_be_continued(version: str, life: str, tmp_path: Path) -> None:
    """An undecided transaction is decided and a message is sent. All else stays as it was."""
    wanted = expected(version, life)
    place = copied(version, life, tmp_path)
    with opened(place, wanted) as engine:
        (waiting,) = engine.undecided()
        committed = engine.decide(waiting.tx_id, "commit", seal=waiting.seal)
        assert sum(receipt.count for receipt in committed.receipts) == waiting.messages
        receipt = engine.send("audit", b"by a later fmq")
        assert receipt.offset == wanted["queues"]["audit/0"]["next"]
    with opened(place, wanted) as engine:
        now = seen(engine, wanted)
        for each in (*committed.receipts, receipt):
            (last,) = engine.read(each.topic, queue=each.queue, offset=each.offset)
            assert last.position == each.position
        assert engine.outcome(waiting.tx_id) == committed
    for place_in, before in wanted["queues"].items():
        assert now["queues"][place_in]["messages"][: len(before["messages"])] == before["messages"]
    assert fmq.check(place).problems == ()


@pytest.mark.parametrize("version", FIRST_OF_THEIRS)
def test_golden_directories_have_every_kind_and_column(version: str) -> None:
    found = all_records(version)
    assert {record.kind for record in found} == KINDS[version]
    runs = [record for record in found if isinstance(record, Run)]
    for flag in (COMPRESSED, LENGTHS, KEYS, TAGS, HEADERS):
        assert {bool(run.flags & flag) for run in runs} == {True, False}, flag
    prepares = [record for record in found if isinstance(record, Prepare)]
    assert any(prepare.replaces for prepare in prepares), "a relocation"
    assert any(prepare.acks for prepare in prepares)
    assert any(prepare.check_after_ms == 9500 for prepare in prepares)
    decided = [record for record in found if isinstance(record, Decided)]
    assert any(each.reason and each.decided_by for each in decided)


def all_records(version: str) -> list[Record]:
    """The records of a version, of all its directories."""
    lives = [life for name, life in GOLDEN if name == version]
    return [record for life in lives for record in records(DATA / version / life)]


def test_every_kind_change_and_column_is_in_a_directory_of_v2() -> None:
    """Those that come later need a directory of their own, beside `v2`."""
    found = [each for version in VERSIONS if version >= "v2" for each in all_records(version)]
    assert {each.kind for each in found} == {*Kind}
    assert {each.asked for each in found if isinstance(each, Changed)} == {*ChangeKind}
    columns = {
        number for each in found if each.extension for number in decode_extension(each.extension)
    }
    assert columns == documented_columns()


def documented_columns() -> set[int]:
    """The numbers in the table of columns in docs/format.md."""
    rows = re.findall(r"(?m)^\| (\d+) \| [A-Z_]+ \|", section("Extension"))
    return {int(number) for number in rows}


def section(name: str) -> str:
    page = FORMAT_MD.read_text(encoding="utf-8")
    return page.partition(f"\n### {name}\n")[2].partition("\n### ")[0]


def test_v2_carries_every_kind_of_entry_over_a_retention() -> None:
    """STATE has an entry under each name of docs/format.md, and dead letters and timers were
    carried forward.
    """
    found = all_records("v2")
    states = [json.loads(each.json) for each in found if isinstance(each, Carryover)]
    assert states
    names = {*re.findall(r"(?m)^\| `(\w+)` \|", section("STATE"))}
    names -= {"codecs", "erased", "limits", "options", "paused", "schedules"}  # came later
    for state in states:
        assert state.keys() == names
        assert [name for name, value in state.items() if not value] == []
        assert any(ranges and moved for _, _, ranges, moved, _ in state["dead"])
    ended = {each.value for each in found if isinstance(each, Changed) and each.asked == 11}
    assert ended == {0, 1, 2}, "purged, replayed, carried forward"
    dead = [each for each in found if isinstance(each, Run) and each.topic.startswith("\tdead\t")]
    failures = [each for run in dead for each in failures_in(run.extension, run.count) or ()]
    assert {each.number for each in failures} == {None, 0, 1, 3}, "None: not carried forward"
    timers = [timing_in(each.extension) for each in found if each.kind == Kind.TIMER]
    assert {bool(timing and timing.number) for timing in timers} == {True, False}


def test_v2_has_internal_topics_and_groups_of_each_form() -> None:
    """Their names lie in the journal, so how they are made is a part of the format."""
    found = all_records("v2")
    assert broadcast_group("all", "first") == "\tbroadcast\tall\tfirst"
    digest = blake2b(f"\tdead\t{LONG}".encode(), digest_size=16).hexdigest()
    topics = {each.topic for each in found if isinstance(each, Run) and each.topic[0] == "\t"}
    assert topics == {
        *("\tdead\tworkers", "\tdead\tmachines", f"\tdead\tof a long name\t{digest}"),
        "\tagain\tworkers\tjobs",
    }
    groups = {each.group for each in found if isinstance(each, Changed) and each.group[:1] == "\t"}
    assert groups == {"\tbroadcast\tall\tfirst"}


@golden_with_times
def test_attempts_continue_where_they_were(version: str, life: str, tmp_path: Path) -> None:
    """What was given back until a time is not handed out before it. What was in hand waits by the
    number of its attempts.
    """
    wanted = expected(version, life)
    for seconds, groups in wanted["handed out"].items():
        place = copied(version, life, tmp_path / seconds)
        clock = at_the_end(wanted)
        with opened(place, wanted, clock) as engine:
            clock.advance(float(seconds))
            for group, said in groups.items():
                got, known = handed_out(engine, group, said["topics"], clock), said["got"]
                if float(seconds):
                    # The maker let what was in hand wait anew from the first poll. Now it waits
                    # from when it was tried, so after hours it is due at once.
                    got, known = at_any_time(got), at_any_time(known)
                assert got == known, (seconds, group)


def at_any_time(said: dict[str, dict[str, list[str]]]) -> dict[str, list[str]]:
    """Return what was handed out at once or later, by queue."""
    found: dict[str, list[str]] = {}
    for queues in said.values():
        for queue, messages in queues.items():
            found[queue] = sorted([*found.get(queue, []), *messages])
    return found


@golden_with_times
@pytest.mark.parametrize("derived", [True, False])
def test_delayed_messages_are_published_at_their_time(
    version: str, life: str, derived: bool, tmp_path: Path
) -> None:
    """Also if the journal alone says what waits."""
    wanted = expected(version, life)
    for seconds, due in wanted["due"].items():
        place = copied(version, life, tmp_path / seconds)
        if not derived:
            remove_derived(place)
        clock = at_the_end(wanted)
        clock.advance(float(seconds))
        with opened(place, wanted, clock) as engine:
            engine.sync()
            assert nameless(published(engine, wanted["queues"])) == nameless(due), seconds


def nameless(queues: Any) -> Any:
    """Return messages without their tx_id. The fmq that made the directory published what waited
    without it.
    """
    return {
        queue: [{**message, "tx_id": None} for message in messages]
        for queue, messages in queues.items()
    }


@pytest.mark.parametrize("derived", [True, False])
def test_old_directories_know_requests_that_were_carried_out(derived: bool, tmp_path: Path) -> None:
    """The client may ask again for all since its last answer, and gets what it would have got."""
    place, wanted = copied("v2", "closed", tmp_path), expected("v2", "closed")
    if not derived:
        remove_derived(place)
    with opened(place, wanted) as engine:
        requests = inside(engine).ledger.requests
        assert not requests.find(CLIENT, 29), "its answer has arrived"
        assert not requests.find(CLIENT, 38), "it did not ask that"
        done = [requests.find(CLIENT, sequence) for sequence in (*range(30, 37), 40)]
        (two,), (same,), (one,), (later,), (commit,), (change,), (taken,), (prepare,) = done
        assert two == same
        bodies = [
            [
                found.body
                for found in engine.read(each.topic, offset=each.offset, limit=each.messages)
            ]
            for each in (two, one)
        ]
        assert bodies == [[b"by a client", b"and 3"], [b"with extras"]]
        assert (later.topic, later.messages) == ("emails", 1)
        assert later.position in {receipt.position for receipt in engine.delayed(limit=1000)}
        assert (taken.topic, taken.messages) == ("audit", 2)
        assert engine.undecided()[0].position == prepare.position
        assert not commit.topic and not change.topic


@golden
def test_each_golden_record_is_encoded_to_the_same_bytes(version: str, life: str) -> None:
    """So decoding loses nothing. The encoder is that of the journal, which writes a record of the
    first version as one of the newest.
    """
    place = DATA / version / life
    seen = set()
    for append in appends(place):
        for record in append:
            data, base = segment_of(place, record.position)
            at = record.position - base
            written, seed = data[at : at + aligned(record.size)], zlib.crc32(data[STORE])
            read = decode(written, 0, record.position, seed)
            if read.flags & HAS_ERASED:
                assert isinstance(read, Run)
                columns = columns_of(written, 0, read)
                assert erase(written[: read.size], read, columns, (), seed) == written[: read.size]
                continue
            if isinstance(read, Run) and read.kind != Kind.REF_MESSAGE:
                whole = with_bodies(written, 0, read)
                read.columns, read.bodies = whole.columns, whole.bodies
            assert size_of(read) == read.size
            again = encoded(read, durable_to_of(written, 0), seed)
            if written[:4] == MAGIC_1:
                bound = isinstance(read, Prepare) and read.bound
                flags = written[33] ^ (EXTENDED | BOUND if bound else 0)
                assert again[8:33] + again[34:] == written[8:33] + written[34:]
                assert again[33] == flags
            else:
                assert again == written
            seen.add(Kind(record.kind))
    if (version, life) == ("v1", "closed"):
        assert seen == KINDS[version]
    assert seen


def segment_of(place: Path, position: int) -> tuple[bytes, int]:
    """The bytes of the segment that holds `position`, and where it begins."""
    base = max(base for each in place.glob("*.seg") if (base := int(each.stem)) <= position)
    return (place / segment_name(base)).read_bytes(), base


@pytest.mark.parametrize("version", FIRST_OF_THEIRS)
def test_golden_directories_have_every_kind_of_file(version: str) -> None:
    names = set(files(DATA / version / "closed"))
    since = DERIVED_SINCE_V2 if version >= "v2" else ()
    for pattern in ("*.seg", *DERIVED, *since, "LOCK"):
        assert any(Path(name).match(pattern) for name in names), pattern
    assert len([name for name in names if name.endswith(".seg")]) > 3


def test_v1_has_one_phase_transactions_with_a_prepare() -> None:
    """It is PREPARE, what it publishes and acks, and COMMIT. No later fmq writes that."""
    place = DATA / "v1" / "closed"
    found = kinds_of(place)
    assert ("PREPARE", "TX_MESSAGE", "ACK", "COMMIT") in found
    assert ("TOPIC", "PREPARE", "TX_MESSAGE", "COMMIT") in found
    prepared = {each.tx for each in records(place) if isinstance(each, Prepare)}
    assert {each.tx for each in records(place) if isinstance(each, Decided)} <= prepared


def test_v1_bound_has_one_phase_transactions_without_a_prepare() -> None:
    """Each begins with what it publishes or acks, or is a COMMIT alone."""
    found = kinds_of(DATA / "v1-bound" / "closed")
    assert {
        ("TOPIC", "TX_MESSAGE", "COMMIT"),
        ("TOPIC", "TX_MESSAGE", "ACK", "COMMIT"),
        ("ACK", "COMMIT"),
        ("COMMIT",),
        ("ACK",),
        ("PREPARE", "PRE_MESSAGE"),
    } <= found
    assert not {kinds for kinds in found if {"PREPARE", "COMMIT"} <= {*kinds}}


def test_a_bound_prepare_has_its_flag() -> None:
    """The directory has a committed and an undecided one, each with an ack. Version 1 is older
    than the flag.
    """
    found = [each for each in records(DATA / "v1-bound" / "closed") if isinstance(each, Prepare)]
    assert [(each.tx_id, each.bound, len(each.acks)) for each in found] == [
        ("bound", True, 1),
        ("waiting", True, 1),
    ]
    older = [each for each in records(DATA / "v1" / "closed") if isinstance(each, Prepare)]
    assert {each.bound for each in older} == {False}


def test_a_one_phase_transaction_has_every_column() -> None:
    runs = [each for each in records(DATA / "v1-bound" / "closed") if isinstance(each, Run)]
    found = [run for run in runs if run.kind == Kind.TX_MESSAGE and run.tx_id == "at-once"]
    for flag in (COMPRESSED, LENGTHS, KEYS, TAGS, HEADERS):
        assert {bool(run.flags & flag) for run in found} == {True, False}, flag


def test_a_question_says_whether_the_transaction_is_bound(tmp_path: Path) -> None:
    """The database's checker answers only about bound transactions."""
    found = {}
    for version in VERSIONS:
        place = copied(version, "closed", tmp_path / version)
        with opened(place, expected(version, "closed")) as engine:
            [question] = engine.feedback.ask_about("waiting")
            found[version] = question.bound
    others = dict.fromkeys(VERSIONS[3:], False)
    assert found == {"v1": False, "v1-bound": True, "v2": True, **others}


@golden
def test_an_old_checkpoint_is_accepted(version: str, life: str) -> None:
    """Otherwise it would be ignored silently, as a derived file may be."""
    slots = sorted((DATA / version / life).glob("checkpoint.*"))
    found = [decoded for slot in slots if (decoded := checkpoint.decode(slot.read_bytes()))]
    assert 0 < len(found) == len(slots)
    assert max(found, key=lambda each: each.generation).clean == (life == "closed")
