"""Options that belong to the directory: which calls store them, which openings are warned, and when
they count.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fmq
from fmq import Options
from fmq.arguments.options import MAY_BE_ZERO
from fmq.arguments.stored_options import AT_ONCE, AT_OPENING, DEFAULTS, STORED
from fmq.errors import BadOption, TooLarge, TooMany
from fmq.testing.inside import inside
from tests.retention.sending import send
from tests.small import CrashDisk, FakeClock, check, remove, segments


def opened(disk: Any, clock: FakeClock | None = None, **options: Any) -> fmq.Engine:
    """An engine of a directory, opened as a program does it that changes nothing else."""
    chosen = Options(segment_bytes=4096, **options)
    return fmq.open("data", chosen, disk=disk, clock=clock or FakeClock(), background=False)


def stored(engine: Any) -> dict[str, Any]:
    return {each.name: each.value for each in engine.settings() if each.source == "directory"}


@pytest.fixture
def warned(caplog: pytest.LogCaptureFixture) -> Iterator[Any]:
    with caplog.at_level(logging.WARNING):
        yield lambda: [each.getMessage() for each in caplog.records]


def test_options_of_the_first_opening_hold_for_later_ones_that_name_none(warned: Any) -> None:
    disk = CrashDisk()
    with opened(disk, lease_seconds=7.0, keep_unread=False) as engine:
        assert stored(engine) == {"lease_seconds": 7.0, "keep_unread": False}
    with opened(disk) as engine:
        assert engine.options.lease_seconds == 7.0
        assert engine.options.keep_unread is False
    with fmq.open("data", disk=disk, read_only=True) as reader:
        assert stored(reader) == {"lease_seconds": 7.0, "keep_unread": False}
        assert reader.options.lease_seconds == 7.0
    assert not warned()
    check(disk)


def test_an_opening_with_another_value_warns_and_uses_the_stored_one(warned: Any) -> None:
    disk = CrashDisk()
    with opened(disk, lease_seconds=7.0):
        pass
    # The default counts as another value if a program names it.
    with opened(disk, lease_seconds=30.0, queues=2) as engine:
        assert engine.options.lease_seconds == 7.0
        (line,) = warned()
        assert "lease_seconds=7.0 is stored and counts, not 30.0" in line
        assert "`fmq config data lease_seconds=30.0`" in line
        # An option that was not named before gets the value of the first opening that names it.
        assert stored(engine) == {"lease_seconds": 7.0, "queues": 2}
        engine.configure(Options(lease_seconds=30.0))
    with opened(disk, lease_seconds=30.0, queues=2):
        assert len(warned()) == 1


def test_an_opening_that_names_nothing_new_writes_nothing() -> None:
    disk = CrashDisk()
    with opened(disk, lease_seconds=7.0) as engine:
        position = engine.stats().position
    with opened(disk, lease_seconds=7.0) as engine:
        assert engine.stats().position == position
    with opened(CrashDisk(), read_ahead_bytes=4096, topic_queues={"t": 3}) as engine:
        assert stored(engine) == {}


def test_segment_bytes_is_stored_only_by_a_call_of_configure() -> None:
    """How the journal grows while it writes is the matter of an opening until then."""
    disk = CrashDisk()
    with opened(disk) as engine:
        assert stored(engine) == {}
        engine.configure(Options(segment_bytes=8192))
        (waiting,) = [each for each in engine.settings() if each.waits]
        assert (waiting.name, waiting.value) == ("segment_bytes", 4096)
    with opened(disk) as engine:
        assert engine.options.segment_bytes == 8192
        engine.send("t", bytes(6000))


def test_a_reset_option_has_the_value_of_the_opening() -> None:
    disk = CrashDisk()
    with opened(disk, lease_seconds=7.0) as engine:
        engine.configure(Options(lease_seconds=9.0, retain_seconds=None))
        assert stored(engine) == {"lease_seconds": 9.0, "retain_seconds": None}
        engine.configure(reset=["lease_seconds", "retain_seconds", "queues"])
        assert stored(engine) == {}
        assert engine.options.lease_seconds == 7.0
    with opened(disk) as engine:
        assert engine.options.lease_seconds == 30.0


@pytest.mark.parametrize(
    ("options", "reset", "why"),
    [
        (Options(read_ahead_bytes=5), [], "read_ahead_bytes: each opening has its own"),
        (None, ["file_mode"], "file_mode: each opening has its own"),
        (None, ["nonsense"], "'nonsense': no option has this name"),
        (Options(queues=2), ["queues"], "queues: is set and reset in one call"),
    ],
)
def test_a_change_that_is_refused_changes_nothing(
    options: Options | None, reset: list[str], why: str
) -> None:
    with opened(CrashDisk()) as engine:
        position = engine.stats().position
        with pytest.raises(BadOption, match=f"{why}.*Nothing was changed"):
            engine.configure(options, reset=reset)
        with pytest.raises(TypeError, match=r"options are an fmq\.Options"):
            engine.configure({"queues": 2})  # type: ignore[arg-type]
        assert engine.stats().position == position


def test_stored_options_outlive_their_segments_and_checkpoints() -> None:
    disk = CrashDisk()
    with opened(disk, retain_bytes=12288, queues=1, on_undecided="park") as engine:
        send(engine, 60)
        assert engine.stats().first_position > 0
        kept = stored(engine)
        assert kept == {"retain_bytes": 12288, "on_undecided": "park"}
    checkpoints = [name for name in disk.directory("data", make=False).names() if "check" in name]
    remove(disk, *checkpoints)
    with opened(disk) as engine:
        assert stored(engine) == kept
    check(disk)


def test_changed_limits_count_at_once() -> None:
    with opened(CrashDisk()) as engine:
        engine.configure(Options(message_bytes_max=100, transactions_max=1))
        for call in (engine.send, engine.transaction().send):
            with pytest.raises(TooLarge, match="fmq config DIR message_bytes_max="):
                call("t", bytes(101))
        with pytest.raises(TooLarge):
            engine.send_many("t", [bytes(101)])
        engine.transaction(tx_id="one").prepare()
        with pytest.raises(TooMany):
            engine.transaction(tx_id="two").prepare()
        engine.configure(reset=["message_bytes_max", "transactions_max"])
        engine.transaction(tx_id="two").prepare()
        engine.send("t", bytes(101))


def test_changed_retention_counts_at_once() -> None:
    disk = CrashDisk()
    with opened(disk) as engine:
        send(engine, 60)
        assert len(segments(disk)) > 6
        engine.configure(Options(retain_bytes=12288))
        assert len(segments(disk)) == 3
        engine.configure(reset=["retain_bytes"])
        send(engine, 60)
        assert len(segments(disk)) > 6


def test_changed_leases_and_member_timeouts_count_at_once() -> None:
    clock = FakeClock()
    with opened(CrashDisk(), clock) as engine:
        engine.send_many("t", [b"1", b"2"])
        one = engine.consumer("t", group="g", member="one")
        assert one.poll(limit=1)
        engine.configure(Options(lease_seconds=5.0, member_timeout_seconds=10.0))
        clock.advance(11.0)
        engine.sync()
        assert engine.group("g").members() == []
        two = engine.consumer("t", group="g", member="two")
        assert b"2" in [each.body for each in two.poll(limit=2)]
        clock.advance(6.0)
        assert b"2" in [each.body for each in two.poll(limit=2)], "its lease has ended"
        one.close()
        two.close()


def test_unknown_stored_options_of_a_newer_version_are_kept_and_ignored() -> None:
    disk = CrashDisk()
    with opened(disk) as engine:
        parts = inside(engine)
        parts.ledger.options.update({"from_the_future": 7, "sync": "sometimes"})
        engine.checkpoint()
        engine.send("t", b"x")
        engine.configure(Options(queues=2))
    with opened(disk) as engine:
        assert engine.options.sync == "always"
        assert stored(engine) == {"queues": 2}
        assert inside(engine).ledger.options["from_the_future"] == 7


def test_a_client_stores_options_and_is_warned_as_an_opening_is(
    tmp_path: Path, warned: Any
) -> None:
    path = tmp_path / "d"
    with fmq.open(path) as engine, engine.serve():
        with fmq.connect(path, Options(lease_seconds=7.0)) as client:
            assert stored(client) == stored(engine) == {"lease_seconds": 7.0}
        assert not warned()
        with fmq.connect(path, Options(lease_seconds=8.0, read_ahead_bytes=5000)) as client:
            first, second = warned()
            assert "lease_seconds=7.0 is stored and counts, not 8.0" in first
            assert "is served with other options" in second
            client.configure(Options(message_bytes_max=10))
            assert client.settings() == engine.settings()
            with pytest.raises(TooLarge):
                engine.send("t", bytes(11))
            with pytest.raises(BadOption):
                client.configure(Options(read_ahead_bytes=5000))


def test_each_option_belongs_to_the_directory_or_to_an_opening() -> None:
    assert not AT_ONCE & AT_OPENING
    assert set(DEFAULTS) >= STORED
    own = {
        *("first_segment_bytes", "checkpoint_bytes", "checkpoint_idle_seconds"),
        *("relocate_bytes", "reference_bytes_min", "topic_queues", "compress_bytes_min"),
        *("checker_threads", "strict_bind", "read_ahead_bytes", "hold_gil", "allow_remote"),
        "file_mode",
    }
    assert set(DEFAULTS) - STORED == own, "a new option: say whose it is, in docs/options.md too"


def test_each_stored_option_is_what_counts_at_the_next_opening() -> None:
    """Whatever its type: another value of each is stored, and is there."""
    other: dict[str, Any] = {"sync": "interval", "on_undecided": "park", "producer_share": 0.5}
    for name in sorted(STORED):
        default = DEFAULTS[name]
        value: Any = other.get(name)
        if value is None:
            value = (not default) if isinstance(default, bool) else (default or 8192) * 2
        assert value != default or name in MAY_BE_ZERO
        disk = CrashDisk()
        with opened(disk) as engine:
            engine.configure(Options(**{name: value}))
        with fmq.open("data", disk=disk, clock=FakeClock(), background=False) as engine:
            assert getattr(engine.options, name) == value, name
