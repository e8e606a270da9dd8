"""The locks that are taken by `with`, and a signal that comes meanwhile."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

import pytest

from fmq.errors import Nested
from fmq.store.journal import section
from fmq.store.journal.section import OwnedLock
from tests.store.lines import Lines, at_each_line


def test_an_interrupt_leaves_a_lock_free() -> None:
    """At any line of taking it and of letting it go."""
    for interrupt in at_each_line(partial(Lines, section)):
        lock = OwnedLock()

        def work(lock: OwnedLock = lock) -> None:
            with lock:
                pass

        with suppress(KeyboardInterrupt):
            interrupt.run(work)
        assert not lock.is_taken(), interrupt.met


def test_a_lock_held_by_its_own_thread_raises_instead_of_waiting() -> None:
    lock = OwnedLock()
    with lock:
        with pytest.raises(Nested), lock:
            pass
        assert lock.is_taken()
    assert not lock.is_taken()
