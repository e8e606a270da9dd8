"""A clock that moves only when a test moves it, or waits."""

from __future__ import annotations

import subprocess
import sys
import threading

import fmq.testing
from fmq.basics.clock import Clock, SystemClock
from fmq.testing import FakeClock


def taken() -> threading.Lock:
    lock = threading.Lock()
    lock.acquire()
    return lock


def test_time_does_not_pass_until_it_is_advanced() -> None:
    clock: Clock = FakeClock(start_us=5_000_000)
    assert (clock.time_us(), clock.monotonic()) == (5_000_000, 0.0)
    assert (clock.time_us(), clock.monotonic()) == (5_000_000, 0.0)


def test_advance_moves_both_clocks() -> None:
    clock = FakeClock(start_us=5_000_000)
    clock.advance(1.5)
    clock.advance(0)
    assert (clock.time_us(), clock.monotonic()) == (6_500_000, 1.5)


def test_many_small_steps_add_up_exactly() -> None:
    clock = FakeClock(start_us=0)
    for _ in range(1000):
        clock.advance(0.1)
    assert (clock.time_us(), clock.monotonic()) == (100_000_000, 100.0)


def test_setting_the_wall_clock_does_not_change_monotonic_time() -> None:
    clock = FakeClock(start_us=5_000_000)
    clock.advance(10)
    clock.set_wall_clock(1_000_000)
    assert (clock.time_us(), clock.monotonic()) == (1_000_000, 10.0)
    clock.advance(1)
    assert (clock.time_us(), clock.monotonic()) == (2_000_000, 11.0)


def test_a_free_lock_is_taken_at_once() -> None:
    clock = FakeClock()
    for timeout in (None, 3.0, 0.0):
        lock = threading.Lock()
        assert clock.wait(lock, timeout)
        assert lock.locked()
    assert clock.monotonic() == 0.0


def test_a_wait_advances_time_instead_of_sleeping() -> None:
    clock = FakeClock()
    assert not clock.wait(taken(), 3600.0)
    assert clock.monotonic() == 3600.0


def test_a_negative_timeout_counts_as_zero() -> None:
    clock = FakeClock()
    assert not clock.wait(taken(), -1.0)
    assert clock.monotonic() == 0.0


class LateLock:
    """A lock that is released while the time of a wait passes."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        return self._clock.monotonic() > 0


def test_a_lock_released_when_the_timeout_ends_is_taken() -> None:
    clock = FakeClock()
    assert clock.wait(LateLock(clock), 1.0)


def test_a_wait_without_a_timeout_waits_for_another_thread() -> None:
    clock, lock = FakeClock(), taken()
    threading.Timer(0.01, lock.release).start()
    assert clock.wait(lock, None)
    assert clock.monotonic() == 0.0


def waiting(clock: FakeClock, lock: threading.Lock) -> tuple[threading.Thread, list[bool]]:
    """Another thread that waits ten seconds for `lock`, and what it got."""
    got: list[bool] = []
    entered = threading.Event()

    def wait() -> None:
        entered.set()
        got.append(clock.wait(lock, 10.0))

    thread = threading.Thread(target=wait)
    thread.start()
    entered.wait()
    return thread, got


def test_another_thread_waits_until_time_has_passed() -> None:
    clock = FakeClock()
    thread, got = waiting(clock, taken())
    thread.join(0.02)
    assert not got
    while thread.is_alive():
        clock.advance(5.0)
        thread.join(0.005)
    assert got == [False]


def test_another_thread_is_woken_when_its_lock_is_released() -> None:
    clock, lock = FakeClock(), taken()
    thread, got = waiting(clock, lock)
    lock.release()
    thread.join()
    assert got == [True]
    assert clock.monotonic() == 0.0


def test_both_clocks_have_the_same_methods() -> None:
    wanted = {name for name in vars(Clock) if not name.startswith("_")}
    assert wanted == {"time_us", "monotonic", "wait"}
    for clock in (FakeClock(), SystemClock()):
        assert all(callable(getattr(clock, name)) for name in wanted)


def test_fmq_testing_imports_no_test_framework() -> None:
    """An application may use it with any test framework."""
    assert all(hasattr(fmq.testing, name) for name in fmq.testing.__all__)
    script = "import sys, fmq.testing; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"pytest", "hypothesis", "unittest"}.intersection(loaded)


def test_until_waits_for_another_thread_without_passing_time() -> None:
    """It checks its condition again whenever that thread begins to wait."""
    clock, done = FakeClock(), []

    def work() -> None:
        lock = threading.Lock()
        lock.acquire()
        for number in range(3):
            done.append(number)
            clock.wait(lock, 1.0)

    thread = threading.Thread(target=work)
    thread.start()
    clock.until(lambda: done == [0])
    for count in (2, 3):
        clock.advance(1.0)
        clock.until(lambda count=count: len(done) == count)  # type: ignore[misc]
    clock.advance(1.0)
    thread.join()
