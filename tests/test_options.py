"""Options: one frozen dataclass, checked when it is made, with the unit in every name."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError, fields
from pathlib import Path
from typing import Any

import pytest

import fmq
from fmq import Options
from fmq.errors import BadName, BadOption
from tests.small import CrashDisk, opened

BAD: list[dict[str, Any]] = [
    {"sync": "sometimes"},
    {"sync": None},
    {"segment_bytes": 2040},
    {"segment_bytes": 4097},
    {"segment_bytes": 2 << 30},
    {"first_segment_bytes": 2040},
    {"first_segment_bytes": 4097},
    {"queues": 0},
    {"file_mode": 0o400},
    {"file_mode": 0o644 | 0o111},
    {"file_mode": 0o1640},
    {"file_mode": 640},
    {"file_mode": "0640"},
    {"queues": 4097},
    {"topic_queues": {"t": 0}},
    {"topic_queues": {"t": 4097}},
    {"sync_interval_seconds": 0},
    {"checkpoint_bytes": 0},
    {"checkpoint_idle_seconds": -1},
    {"message_bytes_max": 0},
    {"transactions_max": 0},
    {"producer_share": 0},
    {"producer_share": 1.5},
    {"undecided_bytes_max": -5},
    {"transaction_messages_max": 0},
    {"relocate_bytes": 0},
    {"retain_acked_bytes": 0},
    {"retain_bytes": 0},
    {"retain_seconds": 0},
    {"outcome_window_seconds": -1},
    {"lease_seconds": 0},
    {"read_ahead_bytes": 0},
    {"compress_bytes_min": -1},
    {"reference_bytes_min": -1},
    {"check_after_seconds": -1},
    {"checker_threads": -1},
    {"on_undecided": ["ask"]},
    {"queues": 1.5},
    {"queues": "3"},
    {"queues": True},
    {"segment_bytes": 16777216.0},
    {"compress_bytes_min": "x"},
    {"keep_unread": "no"},
    {"keep_unread": 0},
    {"lease_seconds": "30"},
    {"lease_seconds": math.nan},
    {"retain_seconds": math.nan},
    {"retain_seconds": math.inf},
    {"lease_seconds": 10**400},
    {"topic_queues": None},
    {"topic_queues": [("t", 1)]},
    {"topic_queues": {"t": "3"}},
    {"topic_queues": {"t": None}},
    {"topic_queues": {"t": 1.5}},
    {"topic_queues": {7: 1}},
]


@pytest.mark.parametrize("option", BAD, ids=lambda option: str(option)[:40])
def test_the_error_for_a_bad_value_names_the_option_and_its_range(
    option: dict[str, Any],
) -> None:
    (name,) = option
    with pytest.raises(BadOption, match=rf"Options\({name}=.*must be .*Nothing was opened"):
        Options(**option)


MAY_BE_NONE = {
    *("compress_bytes_min", "retain_acked_bytes", "retain_bytes", "retain_seconds"),
    "outcome_window_seconds",
}


@pytest.mark.parametrize("name", [field.name for field in fields(Options)])
def test_none_is_refused_unless_the_option_allows_it(name: str) -> None:
    """A value of another type is refused for every option."""
    option: dict[str, Any] = {name: None}
    if name in MAY_BE_NONE:
        assert getattr(Options(**option), name) is None
    else:
        with pytest.raises(BadOption, match=rf"Options\({name}=None\): must be"):
            Options(**option)
    with pytest.raises(BadOption, match=rf"Options\({name}=.*object.*\): must be"):
        Options(**option | {name: object()})


def test_a_time_may_be_an_int_and_some_limits_may_be_zero() -> None:
    zero: Any = dict.fromkeys(("compress_bytes_min", "reference_bytes_min", "checker_threads"), 0)
    options = Options(lease_seconds=30, check_after_seconds=0, **zero)
    assert (options.lease_seconds, options.check_after_seconds) == (30, 0)


@pytest.mark.parametrize("options", [{"sync": "never"}, {}, "always"], ids=str)
def test_options_of_another_type_raise_type_error_and_make_no_file(
    options: Any, tmp_path: Path
) -> None:
    with pytest.raises(TypeError, match=r"fmq\.Options.*Nothing was opened"):
        fmq.open(tmp_path / "data", options)
    assert list(tmp_path.iterdir()) == []


class BytesPath:
    def __fspath__(self) -> bytes:
        return b"data"


@pytest.mark.parametrize(
    "path", [None, b"data", 3, BytesPath()], ids=lambda path: type(path).__name__
)
def test_a_path_of_another_type_raises_type_error(path: Any) -> None:
    with pytest.raises(TypeError, match=r"a path is a str or .*Nothing was opened"):
        fmq.open(path)
    with pytest.raises(TypeError, match=r"a path is a str or .*Nothing was opened"):
        fmq.check(path)


def test_a_bad_topic_name_in_the_options_is_refused_before_opening(
    tmp_path: Path,
) -> None:
    with pytest.raises(BadName, match="topic ''"):
        fmq.open(tmp_path / "data", Options(topic_queues={"": 2}))
    assert list(tmp_path.iterdir()) == []


def test_the_defaults_are_valid_and_options_are_frozen() -> None:
    options = Options()
    with pytest.raises(FrozenInstanceError):
        options.queues = 2  # type: ignore[misc]
    assert options.sync == "always"


def test_options_are_keyword_only() -> None:
    with pytest.raises(TypeError):
        Options("always")  # type: ignore[call-arg]


def test_changing_a_mapping_after_the_check_does_not_affect_the_engine() -> None:
    """A topic with more queues than there may be would make a directory that does not open."""
    queues = {"a": 2}
    options = Options(topic_queues=queues)
    disk = CrashDisk()
    with fmq.open("data", options, disk=disk, background=False) as engine:
        queues["a"] = queues["b"] = 5000
        assert options.topic_queues == {"a": 2}
        options.topic_queues["b"] = 0  # type: ignore[index]
        engine.send("a", b"0")
        engine.send("b", b"0")
        assert [info.topic for info in engine.queues()] == ["a", "a", "b"]
    with opened(disk) as engine:
        assert [info.topic for info in engine.queues()] == ["a", "a", "b"]
    with pytest.raises(BadOption, match="topic_queues"):
        fmq.open("data", options, disk=disk)


@pytest.mark.parametrize("tx_id", ["T", "t" * 255])
def test_the_smallest_segment_holds_a_transaction_and_every_decision(tx_id: str) -> None:
    with opened(CrashDisk(), segment_bytes=2048) as engine:
        with engine.transaction() as tx:
            tx.send("t", b"message")
        tx = engine.transaction(tx_id=tx_id, producer="p" * 255)
        tx.prepare()
        engine.decide(tx_id, "commit", reason="r" * 1024, decided_by="d" * 255)


def test_names_of_sizes_and_times_end_with_their_unit() -> None:
    units = ("_bytes", "_seconds", "_bytes_max", "_bytes_min")
    bare = {field.name for field in fields(Options) if not field.name.endswith(units)}
    assert bare == {
        "sync",
        "file_mode",
        "queues",
        "topic_queues",
        "transactions_max",
        "producer_share",
        "transaction_messages_max",
        "undecided_messages_max",
        "message_ids_kept",
        "on_undecided",
        "check_answers_max",
        "checker_threads",
        "keep_unread",
        "hold_gil",
        "allow_remote",
        "strict_bind",
    }


def test_a_topic_keeps_the_number_of_queues_it_was_made_with() -> None:
    disk = CrashDisk()
    with opened(disk, queues=2, topic_queues={"wide": 4}) as engine:
        engine.send("wide", b"")
        engine.send("usual", b"")
        counts = {topic: len(engine.queues(topic)) for topic in ("wide", "usual")}
    assert counts == {"wide": 4, "usual": 2}
    with opened(disk, queues=7) as engine:
        engine.send("wide", b"")
        engine.send("new", b"")
        assert [len(engine.queues(topic)) for topic in ("wide", "usual", "new")] == [4, 2, 7]


@pytest.mark.parametrize("segment_bytes", [2048, 4096, 65536])
def test_after_a_change_of_segment_size_decisions_still_work(
    segment_bytes: int,
) -> None:
    """This includes a transaction that would not fit a segment of the new size."""
    disk = CrashDisk()
    with opened(disk, segment_bytes=32768) as engine:
        engine.send("t", b"0")
        tx = engine.transaction(tx_id="T")
        tx.send("t", b"x" * 20000)
        tx.prepare()
    options: dict[str, Any] = {"segment_bytes": segment_bytes, "relocate_bytes": 4096}
    with opened(disk, **options) as engine:
        for _ in range(100):
            engine.send("fill", b"f" * 400)
        engine.decide("T", "commit")
        assert [len(message.body) for message in engine.read("t")] == [1, 20000]
    with opened(disk, **options) as engine:
        assert [len(message.body) for message in engine.read("t")] == [1, 20000]
        assert len(engine.read("fill", limit=1000)) == 100


def test_the_options_of_an_engine_are_a_copy() -> None:
    """What a caller adds to the copy was never checked, and must not reach the journal."""
    disk = CrashDisk()
    options = Options(topic_queues={"t": 2})
    assert hash(options) == hash(Options(topic_queues={"t": 2}))
    with fmq.open("d", options, disk=disk) as engine:
        assert engine.options == options
        engine.options.topic_queues["orders"] = 5000  # type: ignore[index]
        assert engine.send("orders", b"1").queue == 0
        assert len(engine.queues("orders")) == 1
    with fmq.open("d", disk=disk) as engine:
        assert [each.body for each in engine.read("orders")] == [b"1"]
