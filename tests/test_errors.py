"""An error advises what helps where it is raised, and nothing that cannot."""

from __future__ import annotations

import copy
import errno
import inspect
import os
import pickle
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import fmq
import fmq.bind.bind_errors
import fmq.compat.queue
import fmq.export.errors
import fmq.table.table_errors
from fmq import Engine, Message
from fmq.errors import (
    AlreadyDecided,
    BadName,
    FmqError,
    NotAStore,
    StorageFull,
    TooLarge,
    TooMany,
    Unreadable,
)
from fmq.store.bytes.content import HEADERS_MAX, TEXT_BYTES_MAX
from fmq.testing import FaultDisk
from tests.small import CrashDisk, FakeClock, opened


def undecided(engine: Engine, tx_id: str) -> None:
    tx = engine.transaction(tx_id=tx_id)
    tx.send("t", b"")
    tx.prepare()


def test_the_error_for_an_exceeded_limit_names_its_option() -> None:
    with opened(CrashDisk(), transaction_messages_max=1, transactions_max=1) as engine:
        with pytest.raises(TooMany, match=r"Send less in one transaction, or .*_max") as e:
            engine.transaction().send_many("t", [b"", b""])
        assert "Decide" not in str(e.value)
        undecided(engine, "T")
        with pytest.raises(TooMany, match=r"Decide some .*, or allow more .*transactions_max="):
            undecided(engine, "U")


FIXED: dict[str, Any] = {
    "key": lambda engine: engine.send("t", b"", key="k" * (TEXT_BYTES_MAX + 1)),
    "headers": lambda engine: engine.send(
        "t", b"", headers={str(number): "" for number in range(HEADERS_MAX + 1)}
    ),
    "reason": lambda engine: engine.decide("T", "commit", reason="r" * 1025),
}
INSTEAD = {
    **dict.fromkeys(("key", "reason"), "limit: make it shorter."),
    "headers": "limit: give it fewer",
}


@pytest.mark.parametrize("what", FIXED)
def test_the_error_of_a_fixed_limit_names_no_option(what: str) -> None:
    with opened(CrashDisk(), segment_bytes=1 << 20) as engine:
        undecided(engine, "T")
        with pytest.raises(TooLarge, match="No option raises this limit: ") as e:
            FIXED[what](engine)
        assert "larger" not in str(e.value)
        assert INSTEAD[what] in str(e.value)


@pytest.mark.parametrize("size", [1025, TEXT_BYTES_MAX, TEXT_BYTES_MAX + 1, 1 << 20])
def test_the_error_for_a_long_reason_names_its_own_limit(size: int) -> None:
    """It is never told the limit of a key."""
    with opened(CrashDisk()) as engine:
        undecided(engine, "T")
        with pytest.raises(TooLarge, match=r"limit is 1,024 .* make it shorter\.$") as e:
            engine.decide("T", "commit", reason="r" * size)
        assert (e.value.size, e.value.limit) == (size, 1024)
        assert engine.outcome("T").state == "undecided"


@pytest.mark.parametrize("read_only", [False, True])
def test_a_path_that_cannot_be_a_store_is_refused_with_a_remedy(
    tmp_path: Path, read_only: bool
) -> None:
    file = tmp_path / "file"
    file.touch()
    (tmp_path / "empty").mkdir()
    for path, write, look in (
        ("none/a", "make the parent first", "path is right"),
        ("file/a", "make the parent first", "a directory of fmq's"),
        ("file", "a directory of fmq's", "a directory of fmq's"),
        ("none", None, "path is right"),
        ("empty", None, "open it for writing first"),
    ):
        advice = look if read_only else write
        if advice is not None:
            with pytest.raises(NotAStore, match=rf"{path}: .* Nothing was changed\. .*{advice}"):
                fmq.open(tmp_path / path, read_only=read_only)
    assert sorted(os.listdir(tmp_path)) == ["empty", "file"]


AT_ANY_STEP = [
    *(("create", 0), ("allocate", 0), ("allocate", 1), ("write", 0), ("sync", 0), ("rename", 0)),
    ("directory sync", 0),
]


@pytest.mark.parametrize(("operation", "nth"), AT_ANY_STEP)
@pytest.mark.parametrize(
    ("number", "advice"), [(errno.EIO, "Take another disk"), (errno.EROFS, "take another place")]
)
def test_a_new_journal_left_half_made_by_an_error_opens_again(
    operation: Any, nth: int, number: int, advice: str
) -> None:
    disk = FaultDisk(CrashDisk())
    disk.fail(operation, nth=nth, error=number)
    with pytest.raises(Unreadable, match=f"half-made.* makes anew.*{advice}") as e:
        opened(disk)
    assert "Nothing was changed" not in str(e.value)
    assert e.value.errno == number
    disk.heal()
    with opened(disk) as engine:
        assert engine.send("t", b"").offset == 0


@pytest.mark.parametrize("operation", ["mkdir", *dict(AT_ANY_STEP)])
def test_a_new_journal_left_half_made_by_a_full_disk_opens_again(operation: Any) -> None:
    disk = FaultDisk(CrashDisk())
    disk.fail(operation, error=errno.ENOSPC)
    with pytest.raises(StorageFull):
        opened(disk)
    disk.heal()
    with opened(disk) as engine:
        assert engine.send("t", b"").offset == 0


def test_a_directory_with_an_empty_lock_file_opens(tmp_path: Path) -> None:
    """A full disk leaves one that has room for a name and not for content."""
    (tmp_path / "LOCK").touch()
    with fmq.open(tmp_path, fmq.Options(segment_bytes=4096), background=False) as engine:
        assert engine.send("t", b"").offset == 0


def test_a_check_loop_refuses_arguments_of_a_wrong_type() -> None:
    with opened(CrashDisk()) as engine:
        for feedback, checkers, match in (
            (1, 2, r"feedback=1: .*ask\(\) and answer\(\), not int\."),
            (engine.feedback, 2, "checkers=2: .* mapping of producers .* not int"),
            (engine.feedback, {"p": "commit"}, "checker='commit': must be a function, not str"),
        ):
            wrong: Any = feedback, checkers
            with pytest.raises(TypeError, match=match):
                fmq.CheckLoop(*wrong)


def test_already_decided_says_to_follow_the_outcome() -> None:
    with opened(CrashDisk()) as engine:
        undecided(engine, "T")
        engine.decide("T", "commit")
        with pytest.raises(AlreadyDecided, match=r"`fmq tx show` or `error\.outcome`") as e:
            engine.decide("T", "rollback")
        assert e.value.outcome.state == "committed"


def test_a_bad_name_says_once_that_nothing_was_changed() -> None:
    with opened(CrashDisk()) as engine:
        for call in (
            lambda: engine.send("", b""),
            lambda: engine.send("t", b"", queue=7),
            lambda: engine.send_many("t", [Message(b"", key="\ud800")]),
            lambda: engine.transaction(tx_id="ä"),
        ):
            with pytest.raises(BadName, match=r"[^.]\. Nothing was changed\.$") as e:
                call()
            assert str(e.value).count("Nothing was") == 1


OUTCOME = fmq.Outcome("T", "committed", None, datetime.now(UTC), 1, 2, "seal")
SAMPLES: dict[str, Any] = {
    "tuple[int | None, int | None] | None": (0, 5),
    "str": "word",
    "str | None": None,
    "dict[str, str]": {"checkpoint.0": "it is missing"},
    "int": 7,
    "int | None": 7,
    "Sequence[str]": ["orders"],
    "object": "thing",
    "OSError": OSError(errno.EIO, "broken", "a.seg"),
    "BaseException": ValueError("why"),
    "Exception": ValueError("why"),
    "Damaged": fmq.errors.Damaged("a.seg", 7, "torn"),
    "Outcome": OUTCOME,
    "Outcome | None": OUTCOME,
    "Mark | None": fmq.Mark(7, b"data"),
    "Message": Message(b"body", offset=7),
}


def tree(kind: type[FmqError]) -> Iterator[type[FmqError]]:
    yield kind
    for below in kind.__subclasses__():
        yield from tree(below)


def sample(kind: type[FmqError]) -> FmqError:
    """One of this kind, made as its __init__ asks for it."""
    made = next(each for each in kind.__mro__ if "__init__" in vars(each))
    if not made.__module__.startswith("fmq"):
        return kind("what happened", 7)
    words = list(inspect.signature(vars(made)["__init__"]).parameters.values())[1:]
    return kind(*(SAMPLES[each.annotation] for each in words if each.kind != each.KEYWORD_ONLY))


@pytest.mark.parametrize(
    "kind", dict.fromkeys(tree(FmqError)), ids=lambda kind: str(kind.__qualname__)
)
@pytest.mark.parametrize(
    "copied",
    [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))],
    ids=["copy", "deepcopy", "pickle"],
)
def test_an_error_can_be_copied_and_sent_to_another_process(
    kind: type[FmqError], copied: Callable[[FmqError], FmqError]
) -> None:
    """Class, text, attributes and notes are kept, so that a pool of processes can report errors."""
    error = sample(kind)
    error.add_note("and a note")
    again = copied(error)
    assert type(again) is kind
    assert (str(again), again.args, again.__notes__) == (str(error), error.args, ["and a note"])
    assert {name: repr(value) for name, value in vars(again).items()} == {
        name: repr(value) for name, value in vars(error).items()
    }
    if isinstance(error, OSError):
        assert isinstance(again, OSError)
        assert again.errno == error.errno == errno.EIO


def directory_in_place_of(path: Path, pattern: str) -> set[str]:
    """The names of the files that are directories now."""
    with fmq.open(path, background=False) as engine:
        engine.send("t", b"")
    for file in path.glob(pattern):
        file.unlink()
        file.mkdir()
    return {file.name for file in path.glob(pattern)}


@pytest.mark.parametrize("read_only", [False, True])
def test_a_directory_in_place_of_a_segment_is_named(tmp_path: Path, read_only: bool) -> None:
    path = tmp_path / "data"
    (name,) = directory_in_place_of(path, "*.seg")
    with pytest.raises(Unreadable, match=f"{name}: Is a directory.*If it is no file") as e:
        fmq.open(path, read_only=read_only).close()
    assert os.path.basename(e.value.file) == name


def test_a_directory_in_place_of_a_checkpoint_is_only_trouble(
    tmp_path: Path,
) -> None:
    path = tmp_path / "data"
    names = directory_in_place_of(path, "checkpoint.*")
    clock = FakeClock()
    with fmq.open(path, clock=clock, background=False) as engine:
        clock.advance(60)
        engine.send("t", b"")
        clock.advance(60)
        engine.sync()
        assert len(engine.read("t")) == 2
        assert any(name in str(engine.stats().trouble) for name in names)


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.EIO, "The disk under it"),
        (errno.EMFILE, "ulimit -n"),
        (errno.EACCES, "not yours to open"),
    ],
)
def test_the_remedy_fits_the_error_number(number: int, advice: str) -> None:
    error = Unreadable("data", OSError(number, os.strerror(number), "a.seg"))
    assert advice in str(error) and str(error).startswith("a.seg: ")
    assert error.errno == number
