"""What `crash` reports, how one crash is tried again, and what each function is called with."""

from __future__ import annotations

import os
import sqlite3
import sys
import threading
from pathlib import Path

import pytest

import fmq
from fmq.errors import BadOption
from fmq.testing import CrashFailure, World, crash
from tests.budget import within_budget
from tests.testing import shop


def nothing(engine: fmq.Engine, world: World) -> None:
    """Holds always."""


def send_three(engine: fmq.Engine, world: World) -> None:
    for body in (b"1", b"2", b"3"):
        engine.send("numbers", body)


def test_a_passing_crash_test_reports_how_much_was_tried() -> None:
    """More power cuts at each crash point are more states, but not more points."""
    few = crash(send_three, nothing, states_max=1)
    many = crash(send_three, nothing, states_max=20)
    assert many.points == few.points > 6
    assert many.states > few.states > 6
    assert f"{few.points} crash points, {few.states} distinct states" in str(few)


def test_checks_see_every_prefix_of_the_sent_messages() -> None:
    """An engine opens and recovers each state, and no state is anything but a prefix."""
    seen = set()

    def check(engine: fmq.Engine, world: World) -> None:
        seen.add(b"".join(bytes(message.body) for message in engine.read("numbers")))

    crash(send_three, check)
    assert seen == {b"", b"1", b"12", b"123"}


def send_one(engine: fmq.Engine, world: World) -> None:
    engine.send("numbers", b"1")
    world.tell(1)


def never(engine: fmq.Engine, world: World) -> None:
    raise AssertionError(f"this one: {len(engine.read('numbers'))} {engine.stats().recovery}")


def failure_of_state(count: int, seed: int) -> CrashFailure:
    """Return the failure of a check that fails in the `count`th state."""
    states = 0

    def check(engine: fmq.Engine, world: World) -> None:
        nonlocal states
        states += 1
        if states == count:
            never(engine, world)

    with pytest.raises(CrashFailure) as caught:
        crash(send_one, check, seed=seed)
    return caught.value


@pytest.mark.parametrize("seed", range(within_budget(1)))
def test_a_failure_can_be_repeated_alone_by_its_name(seed: int) -> None:
    """Each kind of state has a name that finds it, whatever the seed is."""
    names = []
    for count in range(1, crash(send_one, nothing, seed=seed).states + 1):
        found = failure_of_state(count, seed)
        with pytest.raises(CrashFailure) as caught:
            crash(send_one, never, only=found.only)
        again = caught.value
        assert (again.only, again.report.states) == (found.only, 1)
        assert untimed(again) == untimed(found), f"{seed=}"
        names.append(found.only)
    assert len(set(names)) == len(names)
    kinds = " ".join(names)
    assert [
        kind for kind in ("end", "kill", "unwritten", "power", "torn") if kind not in kinds
    ] == []


def untimed(failure: CrashFailure) -> list[str]:
    return [text for text in str(failure).splitlines() if "tried" not in text]


@pytest.mark.parametrize("name", ["", "kill", "7", "0 power", "0 torn", "9999 kill", "0 kill > x"])
def test_an_unknown_name_of_a_state_is_refused(name: str) -> None:
    """So is a name for more crash points than the program has."""
    with pytest.raises(BadOption, match="only="):
        crash(send_one, nothing, only=name)


def test_the_files_of_a_failing_crash_are_kept(tmp_path: Path) -> None:
    """fmq opens the engine's directory and sqlite3 the database, as the crash left them."""
    with pytest.raises(CrashFailure, match="kept") as caught:
        crash(shop.shop(shop.row_first), shop.check, keep=tmp_path / "kept")
    [place] = (tmp_path / "kept").iterdir()
    assert str(place) in str(caught.value)
    assert fmq.check(place / "engine").ok
    with fmq.open(place / "engine", read_only=True) as engine:
        assert engine.read("orders") == []
    connection = sqlite3.connect(place / "files" / "shop.db")
    assert connection.execute("SELECT * FROM orders").fetchall() == [("order 1", "placed")]
    connection.close()


def test_setup_runs_before_the_first_crash_point() -> None:
    """Everything that it made is in every state, and the clock goes on from there."""

    def setup(engine: fmq.Engine, world: World) -> None:
        engine.send("numbers", b"0")
        world.tell("begun")
        (world.path / "file").write_text("made")
        world.clock.advance(3600)

    def check(engine: fmq.Engine, world: World) -> None:
        [first, *_] = engine.read("numbers")
        assert first.body == b"0"
        assert world.told[0] == "begun"
        assert (world.path / "file").read_text() == "made"
        assert first.origin is not None
        assert world.clock.time_us() >= first.origin.time_us + 3600_000_000

    crash(send_one, check, setup=setup)


def test_each_check_has_its_own_files() -> None:
    """No other check sees changes that a check makes to its files, engine and world."""

    def check(engine: fmq.Engine, world: World) -> None:
        assert list(world.path.iterdir()) == []
        assert world.told in ((), (1,))
        assert len(engine.read("numbers")) <= 1
        (world.path / "file").touch()
        world.tell(2)
        engine.send("numbers", b"of the check")

    crash(send_one, check)


def test_all_engines_of_a_crash_test_have_its_options() -> None:
    """The engine of the workload and that of the check are opened with them."""
    options = fmq.Options(segment_bytes=8192, topic_queues={"numbers": 3})

    def check(engine: fmq.Engine, world: World) -> None:
        assert engine.options == options

    crash(check, check, options=options)


def test_chores_run_when_the_fake_clock_advances() -> None:
    """With sync="interval" a reader that waits gets a message, and one that does not gets none."""

    def workload(engine: fmq.Engine, world: World) -> None:
        engine.send("numbers", b"1")
        assert engine.read("numbers") == []
        assert len(engine.read("numbers", timeout=1)) == 1
        engine.close()
        world.clock.advance(60)  # no thread is left that would do anything

    crash(workload, nothing, options=fmq.Options(segment_bytes=65536, sync="interval"))


def test_an_error_of_the_workload_itself_is_raised() -> None:
    """A profiler that was set before is set again."""

    def workload(engine: fmq.Engine, world: World) -> None:
        raise KeyError("the program's own")

    def profiler(*_: object) -> None: ...

    before = sys.getprofile()
    sys.setprofile(profiler)
    try:
        with pytest.raises(KeyError, match="own"):
            crash(workload, nothing)
        assert sys.getprofile() is profiler
    finally:
        sys.setprofile(before)


def test_pytest_fail_in_a_check_gets_a_note_about_the_crash() -> None:
    """pytest.fail and pytest.skip raise no Exception. What they raise passes on, with a note."""

    def check(engine: fmq.Engine, world: World) -> None:
        pytest.fail("no")

    with pytest.raises(pytest.fail.Exception) as caught:
        crash(send_one, check)
    assert "without any crash the check fails" in caught.value.__notes__[0]


def test_the_report_says_whether_recover_or_the_check_failed() -> None:
    """The first line names the error, which is also the cause."""
    with pytest.raises(CrashFailure, match="recover fails: AssertionError: this one: 1") as caught:
        crash(send_one, nothing, recover=never)
    assert str(caught.value.__cause__).startswith("this one: 1")


def test_other_threads_work_only_between_crash_points() -> None:
    """Their calls work as usual. The next crash point of the program sees what they did."""

    def send_many(engine: fmq.Engine) -> None:
        for _ in range(30):
            engine.send("numbers", b"1")

    def workload(engine: fmq.Engine, world: World) -> None:
        thread = threading.Thread(target=send_many, args=(engine,))
        thread.start()
        thread.join()
        world.tell("joined")

    def check(engine: fmq.Engine, world: World) -> None:
        assert not world.told or len(engine.read("numbers")) == 30

    assert 2 < crash(workload, check).points < 30


def test_a_crash_point_is_one_instant_for_all_threads() -> None:
    """A thread writes a number to a file and then sends it. No state has them further apart."""

    def count(engine: fmq.Engine, world: World) -> None:
        for number in range(1, 21):
            (world.path / "new").write_text(str(number))
            (world.path / "new").rename(world.path / "written")
            engine.send("numbers", b"%d" % number)
            world.tell(number)

    def workload(engine: fmq.Engine, world: World) -> None:
        thread = threading.Thread(target=count, args=(engine, world))
        thread.start()
        while thread.is_alive():
            os.getpid()  # a call, and so a point
        thread.join()

    def check(engine: fmq.Engine, world: World) -> None:
        file = world.path / "written"
        written = int(file.read_text()) if file.exists() else 0
        assert written - 1 <= len(engine.read("numbers")) <= written
        assert len(world.told) <= len(engine.read("numbers"))

    assert crash(workload, check, states_max=1).points > 5
