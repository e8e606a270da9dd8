"""A saved starting point for recovery: two slots, written in turn, so that one is always sound.

    offset  size  field
         0     4  magic       b"fmqC"
         4     4  crc         CRC-32 of everything after this field
         8     4  size        of the JSON
        12     4  format      1
        16     8  generation  the larger of two sound slots counts
        24     *  JSON, see Checkpoint

A checkpoint is a hint: a replay of the journal from its first segment finds all of it again. It is
written only after the index that it names is durable, except for the first one. It has two
positions. Replay begins at `scan_from`, the append with the oldest PREPARE that is still undecided.
Below `applied_upto` it only collects what is undecided, because all else there has been applied
already.
"""

from __future__ import annotations

import zlib
from functools import lru_cache
from struct import Struct
from typing import Any, NamedTuple

from fmq.errors import Damaged
from fmq.machine.disk import Directory, File
from fmq.recovery.timer_files import check_timers
from fmq.store.bytes.checksums import read_checked
from fmq.store.journal.segment import CAPACITY_MAX, HEADER_BYTES, segment_name
from fmq.tx.ledger.carryover import (
    check_carried,
    check_list,
    check_number,
    check_text,
    from_json,
    to_json,
)

MAGIC = b"fmqC"
FORMAT = 1
HEAD = Struct("<4sIIIQ")
CRC_END = 8
SLOTS = ("checkpoint.0", "checkpoint.1")
# the suffix of a part file: the index of the segment being written, as of the checkpoint
PART = ".part"
TORN = "its checksum does not match"


class Checkpoint(NamedTuple):
    """The state of the journal at one moment. All of it was durable when the checkpoint was
    written.
    """

    store: str
    applied_upto: int
    scan_from: int
    chain: int
    """The checksum of the segment that holds `applied_upto`, up to there."""
    part_size: int
    """The valid length of that segment's part of an index."""
    segments: list[list[int]]
    """Base, capacity, end, chain and epoch of each segment; the last as it was then.

    A checkpoint of the first fmq has no epochs."""
    ledger: dict[str, Any]
    clean: bool = False
    generation: int = 0
    timers: dict[str, Any] | None = None
    """What waits for its time, see tx/ledger/timers.py. A checkpoint of an older fmq has none."""


def encode(checkpoint: Checkpoint) -> bytes:
    body = to_json(checkpoint._asdict())
    data = HEAD.pack(MAGIC, 0, len(body), FORMAT, checkpoint.generation) + body
    return MAGIC + zlib.crc32(data[CRC_END:]).to_bytes(4, "little") + data[CRC_END:]


# a follower of a running engine reads the slots again and again, mostly unchanged
@lru_cache(maxsize=4)
def decode(data: bytes) -> Checkpoint | None:
    """Return the checkpoint at the start of `data`; None if it is not sound. The result is cached:
    do not change it.
    """
    if len(data) < HEAD.size:
        return None
    magic, crc, size, version, generation = HEAD.unpack_from(data)
    end = HEAD.size + size
    if magic != MAGIC or version != FORMAT or end > len(data):
        return None
    if zlib.crc32(data[CRC_END:end]) != crc:
        return None
    try:
        checkpoint = Checkpoint(**from_json(data[HEAD.size : end]))
        _check(checkpoint, generation)
    except (ValueError, TypeError, RecursionError):
        return None
    return checkpoint


def _check(checkpoint: Checkpoint, generation: int) -> None:
    """Raise ValueError or TypeError for a value that an engine never writes."""
    check_text("the store", checkpoint.store)
    check_number("applied_upto", checkpoint.applied_upto)
    check_number("scan_from", checkpoint.scan_from, 0, checkpoint.applied_upto + 1)
    check_number("chain", checkpoint.chain, 0, 1 << 32)
    check_number("part_size", checkpoint.part_size)
    check_number("generation", checkpoint.generation, generation, generation + 1)
    if type(checkpoint.clean) is not bool:
        raise ValueError("clean is no bool")
    if checkpoint.timers is not None:
        check_timers(checkpoint.timers)
    check_number("floor", check_carried(checkpoint.ledger)["floor"], 0, _last_base(checkpoint) + 1)


def _last_base(checkpoint: Checkpoint) -> int:
    """Return the base of the last segment. Raises ValueError if `applied_upto` is not in it."""
    limit = base = end = before = -1
    for segment in check_list("segments", checkpoint.segments):
        before = end
        base, capacity, end, chain, *epoch = check_list("a segment", segment)
        if limit not in (-1, check_number("base", base)):
            raise ValueError(f"a hole before {base}")
        limit = base + check_number("capacity", capacity, HEADER_BYTES + 1, CAPACITY_MAX + 1)
        check_number("end", end, base + HEADER_BYTES, limit + 1)
        check_number("chain", chain, 0, 1 << 32)
        for each in check_list("an epoch", epoch, len(epoch[:1])):
            check_number("epoch", each, 0, 1 << 32)
    # A crash may have left the last segment empty. Then `applied_upto` is the end of the one
    # before.
    nothing_in_it = before != -1 and checkpoint.applied_upto == before
    low = before if nothing_in_it else base + HEADER_BYTES
    if limit == -1 or not low <= checkpoint.applied_upto <= limit:
        raise ValueError("applied_upto is not in the last segment")
    return int(base)


class Slots(NamedTuple):
    """The newest checkpoint of the two slots, and what is wrong with unusable ones."""

    newest: Checkpoint | None
    """The newest sound checkpoint of this store, if there is one."""
    unusable: dict[str, str]
    """What is wrong with each slot that may have held a newer one, by name."""


def read(directory: Directory, store: bytes) -> Checkpoint | None:
    """Return the newest sound checkpoint of this store, if there is one."""
    return read_slots(directory, store).newest


def read_slots(directory: Directory, store: bytes) -> Slots:
    """Return the newest checkpoint, and what is wrong with slots that cannot be used."""
    sound, unusable, missing = _read_both(directory)
    newest = None
    for name in _by_generation(sound):
        checkpoint = decode(sound[name])
        if checkpoint is not None and checkpoint.store == store.hex():
            newest = checkpoint
            break
        unusable[name] = "it is no checkpoint of this store"
    if newest is not None:
        both = newest.generation > 1  # the first checkpoint fills one slot only
    else:
        with_part = has_part(directory)
        if not with_part and unusable == {SLOTS[1]: TORN}:
            # The first checkpoint writes its slot before its part. There is no part, so that
            # checkpoint never became durable.
            unusable = {}
        # A journal whose engine was killed before its first checkpoint has neither slots nor a
        # part.
        both = bool(unusable) or with_part
    if both:
        unusable |= dict.fromkeys(missing, "it is missing")
    return Slots(newest, dict(sorted(unusable.items())))


def has_part(directory: Directory) -> bool:
    """Return whether there is a part file, which only a checkpoint writes."""
    return any(name.endswith(PART) for name in directory.names())


def refuse_other_store(directory: Directory, store: bytes, base: int) -> None:
    """Raise Damaged if all sound checkpoints belong to another store than the segment at `base`.

    The segment is of `store`. No engine leaves that, so a file was replaced.
    """
    sound, _, _ = _read_both(directory)
    found = [decode(sound[name]) for name in _by_generation(sound)]
    others = [checkpoint for checkpoint in found if checkpoint is not None]
    if others and all(each.store != store.hex() for each in others):
        slot, other = SLOTS[others[0].generation % 2], others[0].store
        raise Damaged(
            segment_name(base),
            base,
            f"it is of the store {store.hex()}, and {slot} of the store {other}, so one of them "
            "was put here instead of another file. If the segments are the right ones, remove "
            f"{SLOTS[0]} and {SLOTS[1]}, which are made anew; if not, restore those of the store "
            f"{other}",
        )


def only_store(directory: Directory) -> bytes:
    """Return the UUID that the sound slots name; no bytes if there is none, or several."""
    sound, _, _ = _read_both(directory)
    found = {each.store for data in sound.values() if (each := decode(data)) is not None}
    return bytes.fromhex(found.pop()) if len(found) == 1 else b""


def _read_both(directory: Directory) -> tuple[dict[str, bytes], dict[str, str], list[str]]:
    """Return the bytes of sound slots, the faults of others, and the names of missing ones."""
    sound: dict[str, bytes] = {}
    unusable: dict[str, str] = {}
    missing: list[str] = []
    for name in SLOTS:
        try:
            found = _slot(directory, name)
        except FileNotFoundError:
            missing.append(name)
        except OSError as error:
            unusable[name] = error.strerror or str(error)
        else:
            if found is None:
                unusable[name] = TORN
            else:
                sound[name] = found
    return sound, unusable, missing


def _by_generation(sound: dict[str, bytes]) -> list[str]:
    """Return the names of the slots, the newest first."""
    return sorted(sound, key=lambda name: _generation(sound[name]), reverse=True)


def _slot(directory: Directory, name: str) -> bytes | None:
    """Return the bytes of a slot; None if they are not sound. Raises OSError."""
    file = directory.open(name)
    try:
        head = file.read(0, HEAD.size)
        if len(head) < HEAD.size:
            return None
        magic, crc, size, *_ = HEAD.unpack(head)
        if magic != MAGIC:
            # The checksum does not cover the magic bytes, so they are compared.
            return None
        checked = read_checked(file, CRC_END, HEAD.size - CRC_END + size, crc)
    finally:
        file.close()
    return None if checked is None else head[:CRC_END] + checked


def _generation(data: bytes) -> int:
    return int(HEAD.unpack_from(data)[-1])


class CheckpointWriter:
    """Writes checkpoints to the two slots in turn."""

    def __init__(self, directory: Directory, generation: int) -> None:
        """Go on after `generation`, the largest one in the slots."""
        self._directory = directory
        self.generation = generation

    def write(self, checkpoint: Checkpoint) -> None:
        """Write `checkpoint` to the next slot; durable on return."""
        assert checkpoint.generation == self.generation + 1
        assert checkpoint.scan_from <= checkpoint.applied_upto
        data = encode(checkpoint)
        assert decode(data) == checkpoint
        name = SLOTS[checkpoint.generation % 2]
        file, new = self._open(name)
        try:
            file.write(0, (data,), sync=True)
        finally:
            file.close()
        if new:
            self._directory.sync()
        self.generation += 1

    def _open(self, name: str) -> tuple[File, bool]:
        try:
            return self._directory.open(name, write=True), False
        except FileNotFoundError:
            return self._directory.create(name), True
