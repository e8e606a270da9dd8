"""`fmq.connect` to a path where no directory can be: it says so at once, as `fmq.open` does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import fmq
from fmq.errors import FmqError, NotAllowed, NotAStore
from fmq.testing import FakeClock


def refusal_of(call: Callable[[], object]) -> FmqError:
    with pytest.raises(FmqError) as caught:
        call()
    return caught.value


@pytest.mark.parametrize("start", [True, False])
@pytest.mark.parametrize("name", ["missing/shop", "file/shop", "file", "loop/shop", "n" * 300])
def test_an_impossible_path_is_refused_at_once(tmp_path: Path, name: str, *, start: bool) -> None:
    """Not after `retry_for`. Where `fmq.open` knows the reason, the text is its own."""
    (tmp_path / "file").write_text("no directory")
    (tmp_path / "loop").symlink_to("loop")
    clock = FakeClock()
    began = clock.monotonic()
    error = refusal_of(lambda: fmq.connect(tmp_path / name, start=start, clock=clock))
    assert isinstance(error, NotAStore)
    assert clock.monotonic() - began < 1.0
    here = refusal_of(lambda: fmq.open(tmp_path / name))
    assert not isinstance(here, NotAStore) or str(error) == str(here)


def test_a_path_that_this_user_may_not_make_is_refused_at_once(tmp_path: Path) -> None:
    """/proc is such a place for every user."""
    clock = FakeClock()
    began = clock.monotonic()
    error = refusal_of(lambda: fmq.connect("/proc/shop", clock=clock))
    assert isinstance(error, (NotAStore, NotAllowed))
    assert clock.monotonic() - began < 1.0


def test_a_directory_that_is_not_there_yet_is_waited_for(tmp_path: Path) -> None:
    """Another process may make it, and serve it."""
    clock = FakeClock()
    began = clock.monotonic()
    error = refusal_of(lambda: fmq.connect(tmp_path / "shop", start=False, clock=clock))
    assert isinstance(error, fmq.errors.NotServed)
    assert clock.monotonic() - began > 20.0
