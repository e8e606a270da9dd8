"""Files of another store, and of a copy that an engine has written to since, are not read as ours.

As far as a directory tells them apart today: its checkpoint names the store and the records that it
knows, and each segment names the end and the checksum of the one before it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import fmq
from fmq.errors import Damaged, FmqError
from fmq.testing import FakeClock
from fmq.testing.fake_clock import START_US
from tests.small import SMALL

FIRST = f"{0:020d}.seg"


def opened(path: Path, time_us: int = START_US) -> fmq.Engine:
    return fmq.open(path, fmq.Options(**SMALL), clock=FakeClock(time_us), background=False)


def filled(path: Path, text: str, count: int = 3, time_us: int = START_US) -> str:
    """Send `count` messages to the directory, close it, and return its store."""
    with opened(path, time_us) as engine:
        for number in range(count):
            engine.send("t", f"{text} {number}".encode())
        return engine.feedback.store


def bodies(path: Path) -> list[bytes]:
    with opened(path) as engine:
        return [bytes(message.body) for message in engine.read("t", limit=1000)]


def files(path: Path) -> dict[str, bytes]:
    """All files but LOCK, whose words change with each opening."""
    return {each.name: each.read_bytes() for each in path.glob("*[!K]")}


def table(path: Path) -> object:
    return pytest.importorskip("fmq.table").read(str(path)).read_all()


READERS: dict[str, Callable[[Path], object]] = {
    "open": opened,
    "read_only": lambda path: fmq.open(path, read_only=True),
    "table": table,
}


def refusals(path: Path) -> list[str]:
    """Return what each of READERS says, all of which must be Damaged and change nothing, and what
    `fmq.check` does.
    """
    before = files(path)
    said = []
    for reader in READERS.values():
        with pytest.raises(Damaged) as caught:
            reader(path)
        said.append(str(caught.value))
    report = fmq.check(path)
    assert not report.ok
    assert files(path) == before
    return [*said, "\n".join(map(str, report.problems))]


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    return tmp_path / "ours"


@pytest.fixture
def other(tmp_path: Path) -> Path:
    return tmp_path / "other"


def test_the_only_segment_of_another_store_is_refused(ours: Path, other: Path) -> None:
    """Each error names both stores and the remedy: restore the segment, or remove the checkpoint if
    the other store is the wanted one.
    """
    stores = filled(ours, "ours"), filled(other, "other")
    own = (ours / FIRST).read_bytes()
    shutil.copy(other / FIRST, ours / FIRST)
    for said in refusals(ours):
        assert all(store in said for store in stores), said
        assert "remove checkpoint.0 and checkpoint.1" in said

    (ours / FIRST).write_bytes(own)
    assert bodies(ours) == [b"ours 0", b"ours 1", b"ours 2"]

    shutil.copy(other / FIRST, ours / FIRST)
    for slot in ours.glob("checkpoint.*"):
        slot.unlink()
    assert bodies(ours) == [b"other 0", b"other 1", b"other 2"]
    assert fmq.check(ours).ok


def test_a_permissive_table_lists_a_segment_of_another_store(ours: Path, other: Path) -> None:
    """It shows none of its messages."""
    read = pytest.importorskip("fmq.table").read
    stores = filled(ours, "ours"), filled(other, "other")
    shutil.copy(other / FIRST, ours / FIRST)
    assert read(str(ours), permissive=True).read_all().num_rows == 0
    (row,) = read(str(ours), "damage").read_all().to_pylist()
    assert all(store in row["reason"] for store in stores)


@pytest.mark.parametrize("keeps_checkpoints", [True, False])
@pytest.mark.parametrize("replaced", [0, -1])
def test_a_segment_of_another_store_among_others_is_refused(
    ours: Path, other: Path, replaced: int, keeps_checkpoints: bool
) -> None:
    """Opening reads its header, unless a checkpoint knows it as sealed. Then a check refuses it."""
    stores = filled(ours, "ours", 200), filled(other, "other", 200)
    name = sorted(each.name for each in ours.glob("*.seg"))[replaced]
    shutil.copy(other / name, ours / name)
    if not keeps_checkpoints:
        for slot in ours.glob("checkpoint.*"):
            slot.unlink()
    if keeps_checkpoints and replaced == 0:
        assert all(store in str(fmq.check(ours).problems) for store in stores)
        with opened(ours) as engine, pytest.raises(Damaged):
            engine.read("t")
    else:
        assert all(store in said for said in refusals(ours) for store in stores)


def test_a_slot_of_another_store_beside_our_own_is_ignored(ours: Path, other: Path) -> None:
    """It counts as one that is not sound."""
    filled(ours, "ours")
    filled(other, "other")
    filled(other, "other")
    (slot,) = ours.glob("checkpoint.*")
    (left,) = {"checkpoint.0", "checkpoint.1"} - {slot.name}
    shutil.copy(other / left, ours / left)
    assert bodies(ours) == [b"ours 0", b"ours 1", b"ours 2"]


# --- a copy of the directory that an engine has written to since --------------------------------


def parted(ours: Path, other: Path, common: int, apart: int, *, at_once: bool = True) -> None:
    """Make `other` a copy of `ours` after `common` messages, and write `apart` to each, in the same
    microsecond or not.
    """
    filled(ours, "both", common)
    shutil.copytree(ours, other)
    filled(ours, "ours", apart)
    filled(other, "othe", apart, START_US + (not at_once))  # as long


def test_the_last_segment_of_a_diverged_copy_is_refused(ours: Path, other: Path) -> None:
    """Its header has another checksum of the segment before than the checkpoint."""
    parted(ours, other, 3, 60)
    last = max(each.name for each in ours.glob("*.seg"))
    assert last > FIRST
    shutil.copy(other / last, ours / last)
    assert all("than the one that the checkpoint knows" in said for said in refusals(ours)[:3])
    assert not fmq.check(ours).ok


def test_a_check_finds_the_last_segment_of_a_diverged_copy(ours: Path, other: Path) -> None:
    """They diverged inside that segment, so only its records show it."""
    parted(ours, other, 3, 3)
    shutil.copy(other / FIRST, ours / FIRST)
    (problem,) = fmq.check(ours).problems
    assert problem.file == FIRST
    assert "not those that the checkpoint knows" in problem.what


@pytest.mark.parametrize("read", ["open", "read_only", "table"])
@pytest.mark.parametrize("apart", [1, 60], ids=["last", "sealed"])
def test_a_segment_of_a_diverged_copy_is_not_read_as_ours(
    ours: Path, other: Path, read: str, apart: int
) -> None:
    """They diverged inside that segment, which is swapped alone, and their records are as long. The
    index beside it knows when its last message was sent.
    """
    parted(ours, other, 3, apart, at_once=False)
    shutil.copy(other / FIRST, ours / FIRST)
    for _ in range(2):
        with pytest.raises(FmqError, match="another copy of this journal"):
            read_all(ours, read)
    assert any(problem.file == FIRST for problem in fmq.check(ours).problems)


def test_a_check_finds_a_sealed_segment_of_a_diverged_copy(ours: Path, other: Path) -> None:
    """Test it with and without its index."""
    parted(ours, other, 3, 60)
    for name in (FIRST, FIRST.replace("seg", "idx")):
        shutil.copy(other / name, ours / name)
        assert any(problem.file == FIRST for problem in fmq.check(ours).problems)


def test_no_index_is_built_from_a_segment_of_a_diverged_copy(ours: Path, other: Path) -> None:
    parted(ours, other, 3, 60)
    shutil.copy(other / FIRST, ours / FIRST)
    (ours / FIRST.replace("seg", "idx")).unlink()
    with opened(ours) as engine, pytest.raises(FmqError, match="not those that the next"):
        engine.read("t")


@pytest.mark.parametrize("read", ["open", "read_only", "table"])
@pytest.mark.parametrize("suffix", ["seg idx", "idx"])
def test_the_index_of_a_sealed_segment_of_a_copy_is_not_used(
    ours: Path, other: Path, read: str, suffix: str
) -> None:
    """Alone it is built anew; with its segment, the records are not those that are known."""
    parted(ours, other, 3, 60)
    for each in suffix.split():
        name = FIRST.replace("seg", each)
        shutil.copy(other / name, ours / name)
    if suffix == "idx":
        assert [body[:4] for body in read_all(ours, read)] == [b"both"] * 3 + [b"ours"] * 60
    else:
        with pytest.raises(FmqError, match=r"not those that the next|no record"):
            read_all(ours, read)


@pytest.mark.parametrize("read", ["open", "read_only", "table"])
@pytest.mark.parametrize("suffix", ["seg", "seg idx", "seg idx keys"])
def test_a_sealed_segment_of_a_copy_is_refused_without_checkpoints(
    ours: Path, other: Path, read: str, suffix: str
) -> None:
    """A replay refuses it at its end. A reader that refreshes shows nothing of it either."""
    parted(ours, other, 3, 60)
    fmq.open(other, read_only=True).close()
    for each in suffix.split():
        name = FIRST.replace("seg", each)
        if (other / name).exists():
            shutil.copy(other / name, ours / name)
    for slot in ours.glob("checkpoint.*"):
        slot.unlink()
    for _ in range(2):
        with pytest.raises(FmqError, match="not those that the next"):
            read_all(ours, read)


@pytest.mark.parametrize("read", ["open", "read_only", "table"])
def test_a_sealed_segment_that_another_opening_has_made_is_refused(
    ours: Path, other: Path, read: str
) -> None:
    """Its header has another epoch, although store and place are the same."""
    parted(ours, other, 3, 200)
    second = sorted(each.name for each in ours.glob("*.seg"))[1]
    shutil.copy(other / second, ours / second)
    with pytest.raises(FmqError, match="another copy of this journal"):
        read_all(ours, read)


def read_all(path: Path, reader: str) -> list[bytes]:
    """The bodies of the topic, as one of the READERS shows them."""
    if reader == "table":
        rows = pytest.importorskip("fmq.table").read(str(path)).read_all()
        return [row["body"] for row in rows.to_pylist()]
    with opened(path) if reader == "open" else fmq.open(path, read_only=True) as engine:
        return [bytes(message.body) for message in engine.read("t", limit=1000)]
