"""Directories that somebody made on purpose: a typed error or a valid state, within bounds.

The checksums are right here, so nothing but the checks of each value stands between the bytes
and the engine. What costs memory or time is tried in a process that has little of both.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import lz4.block
import pytest

import fmq
from fmq.errors import FmqError, NewerFormat, UnknownTransaction
from fmq.recovery import checkpoint as checkpoints
from fmq.store.bytes.columns import COMPRESSED
from fmq.store.bytes.content import encode_one
from fmq.store.bytes.encoding import size_of
from fmq.store.bytes.kinds import Carryover, Kind, Record, Run, TopicMade
from fmq.store.bytes.record import FIRST, LAST, aligned
from fmq.store.journal.segment import HEADER_BYTES, MAGIC, Header, segment_name
from fmq.testing import CrashDisk, FakeClock
from tests.budget import draw
from tests.recovery.planting import tail_of
from tests.small import content as content_of
from tests.small import opened
from tests.store.samples import encoded, run_at
from tests.story import SEGMENT_BYTES, Files, disk_of, files_of, look, open_disk, tell

STORE = bytes(range(16))
VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 1, 63, 1 << 31, 1 << 62, 1 << 63, 1 << 64, 10**30, 1.5, 1e300, "x", "", [],
    {}, [[]], [None], {"a": {}}, [-1, -1], [5, 1], [[[1, 2, 3]]],
)  # fmt: skip


@cache
def sound() -> Files:
    disk, clock = CrashDisk(), FakeClock()
    with open_disk(disk, clock) as engine:
        tell(engine, clock)
    return files_of(disk)


def must_be_bounded(files: Files) -> str:
    """In this process, for what can cost no more than the files are large."""
    disk = disk_of(files)
    for way in (lambda: fmq.open("data", read_only=True, disk=disk), lambda: open_disk(disk)):
        try:
            with way() as engine:
                look(engine)
        except FmqError:
            return "refused"
    return "shown"


def must_survive(cases: dict[str, Files], where: Path) -> dict[str, str]:
    """In a child process with limits; the verdict of each case."""
    for name, files in cases.items():
        (where / name).mkdir()
        for file, content in files.items():
            (where / name / file).write_bytes(content)
    return survive(where)


def survive(where: Path) -> dict[str, str]:
    directories = sorted(str(each) for each in where.iterdir())
    done = subprocess.run(
        [sys.executable, "-m", "tests.hostile_child", *directories],
        cwd=Path(__file__).parent.parent, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    verdicts = dict(json.loads(line) for line in done.stdout.splitlines())
    last = directories[min(len(verdicts), len(directories) - 1)]
    assert done.returncode == 0, f"{last}: {done.stderr}"
    assert verdicts.keys() == set(directories)
    bad = {name: verdict for name, verdict in verdicts.items() if len(verdict) > 10}
    assert not bad, "\n".join(f"{name}: {verdict}" for name, verdict in bad.items())
    return {Path(name).name: verdict for name, verdict in verdicts.items()}


# --- JSON -----------------------------------------------------------------------------------


def variants(value: Any) -> Iterator[Any]:
    """`value` with one part of it, at any depth, missing or replaced by each of VALUES."""
    yield from VALUES
    if isinstance(value, dict):
        for key, part in value.items():
            yield {name: each for name, each in value.items() if name != key}
            yield {**value, key + "é": part}
            for other in variants(part):
                yield {**value, key: other}
    elif isinstance(value, list):
        for i, part in enumerate(value[:2]):
            yield value[:i] + value[i + 1 :]
            for other in variants(part):
                yield [*value[:i], other, *value[i + 1 :]]


DEEP = [b"[" * 100_000, b'{"a":' * 50_000, b"1" * 5000, b"NaN", b'"\xff"', b"", b"\0"]


def sealed_json(body: bytes, generation: int) -> bytes:
    """A checkpoint with the right checksum around any bytes."""
    data = checkpoints.HEAD.pack(checkpoints.MAGIC, 0, len(body), 1, generation) + body
    return data[:4] + zlib.crc32(data[8:]).to_bytes(4, "little") + data[8:]


def newest_checkpoint() -> checkpoints.Checkpoint:
    both = [checkpoints.decode(sound()[name]) for name in checkpoints.SLOTS]
    return max((each for each in both if each), key=lambda each: each.generation)


def test_a_checkpoint_of_any_json_is_refused_or_ignored() -> None:
    files, newest = sound(), newest_checkpoint()
    slot = checkpoints.SLOTS[newest.generation % 2]
    body = json.loads(files[slot][checkpoints.HEAD.size :])
    bodies = [json.dumps(each).encode() for each in variants(body)] + DEEP
    assert len(bodies) > 500
    for each in draw(dict.fromkeys(bodies), 30):
        try:
            must_be_bounded({**files, slot: sealed_json(each, newest.generation)})
        except BaseException as error:
            error.add_note(f"checkpoint {each[:1000]!r}")
            raise


def journal(*records: Record, capacity: int = SEGMENT_BYTES) -> Files:
    """One segment with `records`, an append each, all checksums right."""
    position = HEADER_BYTES
    written: list[bytes] = []
    for record in records:
        record.position, record.flags = position, record.flags | FIRST | LAST
        record.size = size_of(record)
        written.append(encoded(record, position, zlib.crc32(STORE)))
        position += aligned(record.size)
    data = Header(STORE, 0, capacity, 0, 0).encode() + b"".join(written)
    return {segment_name(0): data.ljust(capacity, b"\0")}


def test_a_state_of_any_json_is_refused_or_applied() -> None:
    body = newest_checkpoint().ledger
    assert body["acks"]
    cases = dict.fromkeys(json.dumps(each).encode() for each in variants(body))
    for each in [*draw(cases, 30, "state"), *DEEP]:
        files = journal(Carryover(each, 5), capacity=HEADER_BYTES + 200_000)
        try:
            must_be_bounded(files)
        except BaseException as error:
            error.add_note(f"STATE {each[:1000]!r}")
            raise


# --- sizes, counts and positions ------------------------------------------------------------


def message(count: int = 1, offset: int = 0, body: bytes = b"body") -> Run:
    run = run_at(encode_one(body, None), Kind.MESSAGE, "audit", 0, offset, 5)
    run.count = count
    return run


def compressed(packed: bytes, raw_bytes: int) -> Run:
    run = message(body=packed)
    run.flags, run.raw_bytes = COMPRESSED, raw_bytes
    return run


def forged() -> dict[str, Files]:
    topic = TopicMade("audit", 1, 5)
    bomb = lz4.block.compress(bytes(700 << 20), store_size=False)
    heads = {
        f"capacity-{capacity}": {segment_name(0): Header(STORE, 0, capacity, 0, 0).encode()}
        for capacity in (0, 64, 65, 1 << 32, 1 << 40, 1 << 62, (1 << 63) - 1, (1 << 64) - 1)
    }
    bases = {
        f"base-{base}": {segment_name(base): Header(STORE, base, 4096, 0, 0).encode() + bytes(4032)}
        for base in (4, 1 << 62, (1 << 63) - 8, (1 << 64) - 8)
    }
    flags = bytearray(Header(STORE, 0, 4096, 0, 0).encode())
    flags[10] = 1
    flags[4:8] = zlib.crc32(flags[8:]).to_bytes(4, "little")
    return {
        **heads,
        **bases,
        "required-flag": {segment_name(0): bytes(flags) + bytes(4032)},
        "a-record": journal(topic, message()),
        "many": journal(topic, message(count=1 << 24)),
        "more": journal(topic, message(count=(1 << 32) - 1)),
        "far": journal(topic, message(offset=(1 << 64) - 1)),
        "queues": journal(TopicMade("audit", 0xFFFF, 5), message()),
        "no-queues": journal(TopicMade("audit", 0, 5), message()),
        "claims-a-bomb": journal(topic, compressed(b"\0" * 20, 1 << 30)),
        "claims-more": journal(topic, compressed(b"\0" * 20, (1 << 32) - 1)),
        "bomb": journal(topic, compressed(bomb, 700 << 20), capacity=8 << 20),
        "short-bomb": journal(topic, compressed(bomb, 4096), capacity=8 << 20),
    }


def test_forged_sizes_take_little_memory_and_time(tmp_path: Path) -> None:
    verdicts = must_survive(forged(), tmp_path)
    assert verdicts["a-record"] == "shown"
    assert verdicts["required-flag"] == "refused"


def indexes() -> dict[str, Files]:
    """The index of a sealed segment, rewritten with the right checksums."""
    files, random = sound(), Random(4)
    name = min(name for name in files if name.endswith(".idx"))
    index = files[name]
    head_size = int.from_bytes(index[8:12], "little")
    cases = {}
    for number in range(60):
        forged = bytearray(index)
        at = random.randrange(16, len(index))
        size = min(random.choice((1, 2, 4, 8)), len(index) - at)
        forged[at : at + size] = random.choice((b"\xff", b"\0", b"\x7f", b"\x01")) * size
        forged[12:16] = zlib.crc32(forged[head_size:]).to_bytes(4, "little")
        forged[4:8] = zlib.crc32(forged[8:head_size]).to_bytes(4, "little")
        cases[f"{number}-at-{at}"] = {**files, name: bytes(forged)}
    return cases


def test_a_forged_index_shows_no_message_that_was_not_sent() -> None:
    """With a right checksum it may hide messages, but must not make any up."""
    truth = look_at(sound())
    for case, files in indexes().items():
        for name, value in look_at(files).items():
            if "/" in name and isinstance(value, list):
                assert all(each in truth[name] for each in value), case


def test_a_newer_record_below_the_checkpoint_is_refused_when_read() -> None:
    """Messages before it are read. Opening begins after it and has nothing to refuse."""
    disk = CrashDisk()
    with opened(disk) as engine:
        for number in range(5):
            engine.send("t", b"%d" % number)
    tail = tail_of(disk)
    place = tail.place()
    data = bytearray(content_of(disk)[tail.name][place : tail.end])
    data[32] = 77
    head_size = int.from_bytes(data[12:16], "little")
    data[4:8] = zlib.crc32(data[8:head_size], tail.seed).to_bytes(4, "little")
    tail.plant(place, bytes(data))

    def refused(call: Callable[[], object]) -> None:
        with pytest.raises(NewerFormat, match="a record of kind 77") as caught:
            call()
        assert caught.value.position == tail.base + place

    def sought(engine: fmq.Engine | fmq.ReadOnlyEngine) -> None:
        for limit in (4, 1000):
            batch = engine.read_batch("t", limit=limit)
            assert batch is not None
            assert batch.bodies == (b"0", b"1", b"2", b"3")
            assert len(batch.messages) == 4
        refused(lambda: engine.read("t"))
        refused(lambda: engine.read_batch("t", offset=4))

    with fmq.open("data", read_only=True, disk=disk) as reader:
        sought(reader)
    with opened(disk) as engine, engine.consumer("t", group="g") as consumer:
        sought(engine)
        assert len(consumer.poll()) == 4
        refused(consumer.poll)
        refused(consumer.poll_batch)
    [problem, *_] = fmq.check("data", disk=disk).problems
    assert (problem.position, "kind 77" in problem.what) == (tail.base + place, True)


def look_at(files: Files) -> dict[str, Any]:
    try:
        with open_disk(disk_of(files)) as engine:
            return look(engine)
    except FmqError:
        return {}


# --- files that are none --------------------------------------------------------------------


def test_random_bytes_in_any_file_are_survived(tmp_path: Path) -> None:
    random = Random(5)
    cases = {}
    for name in sound():
        for size in (0, 1, 3000):
            cases[f"random-{name}-{size}"] = {**sound(), name: random.randbytes(size)}
            cases[f"only-{name}-{size}"] = {name: random.randbytes(size)}
    cases["magic"] = {name: MAGIC + random.randbytes(4092) for name in sound()}
    cases["random"] = {name: random.randbytes(len(data)) for name, data in sound().items()}
    must_survive(cases, tmp_path)


STRANGE_NAMES = (
    "²" * 20 + ".seg", "٣" * 20 + ".seg", "99999999999999999999.seg", "00000000000000000008.seg",
    "notes.idx", ".idx", "x.part", ".part", "a.spare", ".spare", "x.new", ".copy", "quarantine",
    "-0000000000000000001.seg", "000000000000000000_1.idx", " 0000000000000000000.part",
)  # fmt: skip


def test_files_with_strange_names_are_survived(tmp_path: Path) -> None:
    cases = {f"name-{i}": {**sound(), name: b"?"} for i, name in enumerate(STRANGE_NAMES)}
    cases |= {f"only-{i}": {name: b"?"} for i, name in enumerate(STRANGE_NAMES)}
    must_survive(cases, tmp_path)


@pytest.mark.parametrize("kind", ["directory", "symlink", "symlink to itself", "pipe", "nobody's"])
def test_names_that_are_not_plain_files_are_refused_or_skipped(kind: str, tmp_path: Path) -> None:
    """A symbolic link is never followed, a pipe never waited for, a lock never replaced."""
    outside = tmp_path / "outside"
    outside.mkdir()
    store = tmp_path / "stores"
    store.mkdir()
    for victim in sound():
        directory = store / victim
        directory.mkdir()
        for name, content in sound().items():
            (directory / name).write_bytes(content)
        path = directory / victim
        path.rename(outside / victim)
        if kind == "directory":
            path.mkdir()
        elif kind == "symlink":
            path.symlink_to(outside / victim)
        elif kind == "symlink to itself":
            path.symlink_to(victim)
        elif kind == "pipe":
            os.mkfifo(path)
        else:
            (outside / victim).rename(path)
            path.chmod(0)
    before = {each.name: each.read_bytes() for each in outside.iterdir()}
    survive(store)
    assert {each.name: each.read_bytes() for each in outside.iterdir()} == before


@pytest.mark.parametrize("suffix", [".idx", ".part", ".seg", "checkpoint", "LOCK", ".spare"])
@pytest.mark.parametrize("size", [1 << 13, 1 << 40])
def test_a_file_lengthened_by_zeros_costs_no_memory(tmp_path: Path, suffix: str, size: int) -> None:
    """The zeros take no room on the disk. Reading all of them would raise MemoryError."""
    with fmq.open(tmp_path, fmq.Options(segment_bytes=SEGMENT_BYTES)) as engine:
        sent = [b"%d" % number * 300 for number in range(30)]
        for body in sent:
            engine.send("t", body)
        engine.checkpoint()
    for path in tmp_path.iterdir():
        if suffix in path.name and path.stat().st_size < size:
            os.truncate(path, size)
    with fmq.open(tmp_path, read_only=True) as reader:
        assert [message.body for message in reader.read("t", limit=99)] == sent
    assert all(suffix in each.file for each in fmq.check(tmp_path).problems)
    with fmq.open(tmp_path) as engine:
        assert [message.body for message in engine.read("t", limit=99)] == sent
        with pytest.raises(UnknownTransaction):
            engine.outcome("never")
