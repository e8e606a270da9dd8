"""Open files: their number is bounded, they are shared, and none is closed while it is read."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from fmq.machine.disk import Directory, File
from fmq.store.journal.files import OPEN_MAX, Files
from fmq.store.journal.segment import segment_name
from fmq.testing import CrashDisk
from tests.store.journals import directory_of

MANY = OPEN_MAX + 20


class Opened:
    """A directory that remembers every file that was opened in it."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self.files: list[File] = []

    def open(self, name: str, *, write: bool = False) -> File:
        self.files.append(self._directory.open(name, write=write))
        return self.files[-1]

    @property
    def still_open(self) -> int:
        return sum(map(is_open, self.files))


def is_open(file: File) -> bool:
    try:
        file.size()
    except OSError:
        return False
    return True


@pytest.fixture
def opened() -> Opened:
    directory = directory_of(CrashDisk())
    for base in range(MANY):
        directory.create(segment_name(base)).write(0, (b"%d" % base,), sync=True)
    return Opened(directory)


@pytest.fixture
def files(opened: Opened) -> Files:
    return Files(opened)  # type: ignore[arg-type]


def test_a_file_is_opened_once_and_shared(files: Files, opened: Opened) -> None:
    for _ in range(3):
        with files.using(7) as one, files.using(7) as other:
            assert one is other
            assert one.read(0, 10) == b"7"
    assert len(opened.files) == 1


def test_no_more_files_stay_open_than_the_limit(files: Files, opened: Opened) -> None:
    for base in range(MANY):
        with files.using(base):
            pass
        assert opened.still_open <= OPEN_MAX
    assert opened.still_open == OPEN_MAX


def test_the_least_recently_used_files_are_closed(files: Files, opened: Opened) -> None:
    for base in range(OPEN_MAX):
        with files.using(base):
            pass
    with files.using(0):
        pass
    with files.using(OPEN_MAX):
        pass
    assert [is_open(file) for file in opened.files[:3]] == [True, False, True]


def test_a_file_in_use_is_never_closed(files: Files, opened: Opened) -> None:
    """This holds for any number of files in use. The limit holds again afterwards."""
    with ExitStack() as stack:
        used = [stack.enter_context(files.using(base)) for base in range(MANY)]
        assert [file.read(0, 10) for file in used] == [b"%d" % base for base in range(MANY)]
    assert opened.still_open <= OPEN_MAX


def test_a_file_in_use_stays_open_while_many_others_are_used(files: Files) -> None:
    with files.using(0) as used:
        for base in range(1, MANY):
            with files.using(base):
                pass
        assert used.read(0, 10) == b"0"


def test_a_forgotten_file_is_closed_when_its_last_user_is_done(
    files: Files, opened: Opened
) -> None:
    with files.using(3) as one:
        with files.using(3):
            files.forget(3)
            assert is_open(one)
        assert one.read(0, 10) == b"3"
    assert not is_open(one)
    with files.using(4) as idle:
        pass
    files.forget(4)
    assert not is_open(idle)


def test_a_forgotten_file_is_opened_again_on_its_next_use(files: Files) -> None:
    with files.using(3) as old:
        files.forget(3)
        with files.using(3) as new:
            assert new is not old
            assert new.read(0, 10) == b"3"
        assert is_open(old)


def test_forgetting_a_file_that_was_never_opened_does_nothing(files: Files, opened: Opened) -> None:
    files.forget(5)
    assert opened.files == []


def test_using_a_missing_segment_raises_file_not_found(files: Files) -> None:
    with pytest.raises(FileNotFoundError), files.using(MANY + 1):
        pass


def test_close_closes_idle_files_at_once_and_used_ones_when_released(
    files: Files, opened: Opened
) -> None:
    for base in range(5):
        with files.using(base):
            pass
    with files.using(1) as used:
        files.close()
        assert opened.still_open == 1
        assert used.read(0, 10) == b"1"
    assert opened.still_open == 0


def test_an_error_while_reading_releases_the_file(files: Files, opened: Opened) -> None:
    with pytest.raises(ZeroDivisionError), files.using(1):
        raise ZeroDivisionError
    files.forget(1)
    assert opened.still_open == 0
