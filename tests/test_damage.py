"""Any byte of any file may be wrong, missing or somewhere else: refused or harmless.

Two directories are damaged, one file at a time: `clean` was closed, with retention behind it;
`unclean` was killed, so its last append is in doubt, and damage may cost that one and no other.
What must hold of each wound is in `examine`. Each run draws some; `FMQ_BUDGET=9` tries them all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from random import Random

import pytest

import fmq
from fmq.errors import Damaged, FmqError
from fmq.recovery.checkpoint import SLOTS
from fmq.testing import CrashDisk, FakeClock
from tests.budget import SEED, draw
from tests.story import (
    SEGMENT_BYTES,
    Files,
    Look,
    disk_of,
    files_of,
    last_words,
    look,
    open_disk,
    tell,
)

HEADER_BYTES = 64


@dataclass(frozen=True)
class Store:
    """The files of a directory, and what may be seen of it; the last is the whole truth."""

    files: Files
    truths: tuple[Look, ...]
    last_start: dict[str, int]
    """Where an append begins that is in doubt, in the file that holds it."""


@cache
def clean() -> Store:
    disk, clock = CrashDisk(), FakeClock()
    disk.random(1)  # so that it is another store than the other one
    with open_disk(disk, clock, retain_bytes=3 * SEGMENT_BYTES, keep_unread=False) as engine:
        tell(engine, clock)
        last_words(engine)
        assert engine.stats().first_position > 0, "retention has dropped something"
    return Store(files_of(disk), (seen(disk),), {})


@cache
def unclean() -> Store:
    disk, clock = CrashDisk(), FakeClock()
    engine = open_disk(disk, clock)
    tell(engine, clock)
    before = seen(disk.after_kill())
    start = engine.stats().position
    last_words(engine)
    files, truth = files_of(disk), seen(disk.after_kill())
    engine.close()
    assert before != truth
    name = max(name for name in files if name.endswith(".seg"))
    return Store(files, (before, truth), {name: start - int(name[:20])})


STORES = {"clean": clean, "unclean": unclean}


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest) -> Store:
    return STORES[request.param]()


def seen(disk: CrashDisk) -> Look:
    with open_disk(disk) as engine:
        return look(engine)


# --- what must hold of every wound ----------------------------------------------------------


def examine(store: Store, files: Files, wound: str) -> str:
    """`refused`, `partly` or `harmless`; anything else fails, and says which wound it was.

    An error is an FmqError that names a file, and refusing changes nothing. What is shown was
    written there; what is missing, some error speaks of. The check finds whatever costs
    something, and a reader without a lock shows less, but nothing else.
    """
    disk = disk_of(files)
    before = disk.fingerprint()
    sound = check_is_sound(disk, files, wound)
    look_without_lock(store, disk, files, wound)
    assert disk.fingerprint() == before, f"{wound}: a reader has written"
    try:
        engine = open_disk(disk)
    except FmqError as error:
        refusal = error
    else:
        return what_is_seen(store, engine, files, wound, sound=sound)
    names_a_file(refusal, files, wound)
    assert without(files_of(disk), "LOCK") == without(files, "LOCK"), f"{wound}: has written"
    assert not sound, f"{wound}: refused ({refusal}), and the check finds nothing"
    return "refused"


def what_is_seen(store: Store, engine: fmq.Engine, files: Files, wound: str, *, sound: bool) -> str:
    """The second half: what an engine shows that was not refused."""
    with engine:
        found = look(engine)
    errors = [value for name, value in found.items() if is_new_error(value, name, store)]
    for error in errors:
        names_a_file(error, files, wound)
        assert not sound, f"{wound}: {error}, and the check finds nothing"
    assert any(agree(found, truth) for truth in store.truths), f"{wound}: {explain(found, store)}"
    return "partly" if errors else "harmless"


def is_new_error(value: object, name: str, store: Store) -> bool:
    """Of what retention has dropped there is an error even if nothing is damaged."""
    truths = [truth.get(name) for truth in store.truths]
    return isinstance(value, FmqError) and not any(isinstance(each, type(value)) for each in truths)


def agree(found: Look, truth: Look) -> bool:
    """Return whether each value in `found` is an error or that of `truth`, and none is missing."""
    return found.keys() == truth.keys() and all(
        isinstance(value, FmqError) or value == truth[name] for name, value in found.items()
    )


def explain(found: Look, store: Store) -> str:
    truth = store.truths[-1]
    return "; ".join(
        f"{name}: {found.get(name)!r} is not {truth.get(name)!r}"
        for name in found.keys() | truth.keys()
        if repr(found.get(name)) != repr(truth.get(name))
    )


def names_a_file(error: FmqError, files: Files, wound: str) -> None:
    named = getattr(error, "file", str(error))
    assert any(name in named for name in (*files, ".seg", *SLOTS)), f"{wound}: {error!r}"


def check_is_sound(disk: CrashDisk, files: Files, wound: str) -> bool:
    try:
        return fmq.check("data", disk=disk).ok
    except FmqError as error:
        names_a_file(error, files, wound)
        return False


def look_without_lock(store: Store, disk: CrashDisk, files: Files, wound: str) -> None:
    try:
        with fmq.open("data", read_only=True, disk=disk, clock=FakeClock()) as reader:
            found = look(reader)
    except FmqError as error:
        names_a_file(error, files, wound)
        return
    truth = store.truths[-1]
    for name, value in found.items():
        if "/" in name and not isinstance(value, FmqError):
            assert value == truth[name][: len(value)], f"{wound}: a reader sees {name}: {value}"


# --- wounds ---------------------------------------------------------------------------------


def without(files: Files, *names: str) -> Files:
    return {name: content for name, content in files.items() if name not in names}


def examine_all(store: Store, wounds: Iterator[tuple[str, Files]], count: int) -> dict[str, int]:
    """Examine `count` of the wounds in each run, all with FMQ_BUDGET=30."""
    counts: dict[str, int] = {}
    for wound, files in draw(wounds, count):
        verdict = examine(store, files, wound)
        counts[verdict] = counts.get(verdict, 0) + 1
    return counts


def flips(store: Store, random: Random, *, every: int) -> Iterator[tuple[str, Files]]:
    """One bit of each byte of headers and of many in small files; elsewhere each bit of some."""
    spares = [name for name in store.files if name.endswith(".spare")]
    for name in without(store.files, *spares[1:]):
        content = store.files[name]
        end = len(content.rstrip(b"\0"))
        small = len(content) if len(content) < 1024 else HEADER_BYTES
        places = (*range(min(small, HEADER_BYTES)), *range(HEADER_BYTES, small, every))
        bits = [(at, random.randrange(8)) for at in places]
        if name.endswith(".seg"):
            places = (*random.sample(range(HEADER_BYTES, end), 5), end, len(content) - 1)
            bits += [(at, bit) for at in places for bit in range(8)]
        for at, bit in bits:
            changed = content[:at] + bytes((content[at] ^ 1 << bit,)) + content[at + 1 :]
            yield f"{name} byte {at} bit {bit}", {**store.files, name: changed}


def test_a_flipped_bit_is_refused_or_harmless(store: Store) -> None:
    wounds = flips(store, Random(SEED), every=6 if store is clean() else 20)
    counts = examine_all(store, wounds, 70)
    assert counts["harmless"] > 1
    assert counts.get("refused", 0) < 5, "a flipped bit costs a message, and no directory"


def cuts(store: Store, random: Random) -> Iterator[tuple[str, Files]]:
    for name, content in store.files.items():
        size = len(content)
        end = len(content.rstrip(b"\0"))
        places = {0, 1, 7, 63, 64, size // 2, size - 1, end, end - 1}
        places |= {random.randrange(max(size, 1)) for _ in range(6)}
        for at in sorted(place for place in places if 0 <= place < size):
            yield f"{name} cut at {at}", {**store.files, name: content[:at]}
        yield f"{name} longer", {**store.files, name: content + b"more"}
        yield f"{name} longer by zeros", {**store.files, name: content + bytes(512)}


def test_a_file_of_another_length_is_refused_or_harmless(store: Store) -> None:
    examine_all(store, cuts(store, Random(SEED)), 25)


def holes(store: Store, random: Random) -> Iterator[tuple[str, Files]]:
    for name, content in store.files.items():
        for filler in (b"\0", b"\xff", None):
            for size in (1, 8, 100, 512, 4096):
                start = random.randrange(max(len(content), 1)) // size * size
                hole = random.randbytes(size) if filler is None else filler * size
                if start < store.last_start.get(name, 0) < start + size:
                    continue  # the last append alone could tell that the one before was durable
                changed = (content[:start] + hole + content[start + size :])[: len(content)]
                yield f"{name} at {start} {size} x {filler!r}", {**store.files, name: changed}


def test_overwritten_bytes_are_refused_or_harmless(store: Store) -> None:
    examine_all(store, holes(store, Random(SEED)), 25)


def removals(store: Store) -> Iterator[tuple[str, Files]]:
    for name in store.files:
        yield f"{name} removed", without(store.files, name)


def test_a_missing_file_is_refused_or_harmless(store: Store) -> None:
    examine_all(store, removals(store), 99)


def exchanges(store: Store, strange: Files) -> Iterator[tuple[str, Files]]:
    """Files swapped, doubled, renamed, and taken from another store."""
    files = store.files
    for name in files:
        for other in files:
            if name < other:
                swapped = {**files, name: files[other], other: files[name]}
                yield f"{name} and {other} swapped", swapped
            if name != other:
                yield f"{name} copied over {other}", {**files, other: files[name]}
        if name in strange:
            yield f"{name} of another store", {**files, name: strange[name]}
    limit = max(int(name[:20]) for name in files if name.endswith(".seg")) + SEGMENT_BYTES
    for name in files:
        for base in (0, limit, limit + SEGMENT_BYTES, 8, 10**19):
            new = f"{base:020d}.{name.rpartition('.')[2]}"
            if new not in files and name.endswith((".seg", ".idx", ".part", ".spare")):
                yield f"{name} doubled as {new}", {**files, new: files[name]}
                yield f"{name} renamed {new}", {**without(files, name), new: files[name]}


def test_a_file_in_the_place_of_another_is_refused_or_harmless(store: Store) -> None:
    other = unclean() if store is clean() else clean()
    examine_all(store, exchanges(store, other.files), 30)


def test_examine_finds_nothing_in_undamaged_files(store: Store) -> None:
    """A control: without damage, `examine` says harmless, and all messages are seen."""
    assert examine(store, store.files, "none") == "harmless"
    assert seen(disk_of(store.files)).keys() == store.truths[-1].keys()


def test_the_examination_notices_a_wrong_or_missing_message(store: Store) -> None:
    name = "audit/0"
    truth = store.truths[-1]
    for messages in (truth[name][:-2], truth[name][:-1] + truth[name][:1]):
        assert not any(agree({**truth, name: messages}, each) for each in store.truths)


# --- what it found, one rule each -----------------------------------------------------------


def grown(sends: int) -> CrashDisk:
    """A disk after a kill, with no checkpoint yet and so many messages of half a KiB."""
    disk = CrashDisk()
    engine = open_disk(disk, checkpoint_bytes=1 << 20)
    for _ in range(sends):
        engine.send("audit", Random(0).randbytes(500))
    files = files_of(disk)
    engine.close()
    return disk_of(files)


def refusal(files: Files) -> str:
    with pytest.raises(Damaged) as refused:
        open_disk(disk_of(files))
    assert not fmq.check("data", disk=disk_of(files)).ok
    return str(refused.value)


def test_a_last_segment_that_is_cut_short_is_refused() -> None:
    """No crash leaves it: it had its full length before its name. Otherwise sends would be lost."""
    files = files_of(grown(3))
    name = f"{0:020d}.seg"
    end = len(files[name].rstrip(b"\0"))
    for size in (end // 2, end - 1, end, SEGMENT_BYTES - 1):
        assert "shorter than its segment" in refusal({**files, name: files[name][:size]})


def test_a_missing_segment_after_a_sealed_one_is_refused() -> None:
    """No checkpoint names it yet, only the index of the segment before it."""
    files = files_of(grown(10))
    assert not any(name.startswith("checkpoint") for name in files)
    last = max(name for name in files if name.endswith(".seg"))
    assert last in refusal(without(files, last))


def test_an_empty_index_is_built_again() -> None:
    """A power cut may leave it where the file system loses the content."""
    files = files_of(grown(20))
    for name in files:
        if name.endswith(".idx"):
            with open_disk(disk_of({**files, name: b""})) as engine:
                assert len(engine.read("audit")) == 20
