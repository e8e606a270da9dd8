"""What is of the wrong kind is refused by name, in every public call, and nothing is changed.

Nothing here waits: what is accepted ends at once, and what used to spin for ever is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fmq
from fmq import CheckLoop, Engine
from fmq.errors import BadName, BadOption, NotAStore
from fmq.options import SECONDS_MAX
from tests.small import CrashDisk, bodies, check, opened

Call = Callable[[Any], Any]


@pytest.fixture
def disk() -> CrashDisk:
    return CrashDisk()


@pytest.fixture
def engine(disk: CrashDisk) -> Iterator[Engine]:
    with opened(disk, topic_queues={"four": 4}) as engine:
        engine.send("t", b"0")
        engine.send("four", b"0", queue=3)
        yield engine
        assert engine.undecided() == []
        assert bodies(engine, "t") == [b"0"]
        assert [info.topic for info in engine.queues()] == ["t", *["four"] * 4]
    check(disk)


def waits(engine: Engine) -> dict[str, Call]:
    """All that waits, where there is nothing to wait for."""
    consumer = engine.consumer("empty", group="g")
    return {
        "poll": lambda v: consumer.poll(timeout=v),
        "poll_batch": lambda v: consumer.poll_batch(timeout=v),
        "read": lambda v: engine.read("empty", timeout=v),
        "read of what is there": lambda v: engine.read("t", timeout=v),
        "read_batch": lambda v: engine.read_batch("empty", timeout=v),
        "settle": lambda v: engine.settle(timeout=v),
        "ask": lambda v: engine.feedback.ask("p", wait=v),
        "once": lambda v: CheckLoop(engine.feedback, {}).once(wait=v),
        "loop's wait": lambda v: CheckLoop(engine.feedback, {}, wait=v),
        "loop's pause": lambda v: CheckLoop(engine.feedback, {}, pause=v),
    }


WAITS = (
    *("poll", "poll_batch", "read", "read of what is there", "read_batch", "settle", "ask"),
    *("once", "loop's wait", "loop's pause"),
)
NO_SECONDS = ["5", b"5", None, Decimal(1), True, np.True_, [1], 1j]


@pytest.mark.parametrize("seconds", NO_SECONDS, ids=repr)
@pytest.mark.parametrize("name", WAITS)
def test_a_wait_of_what_is_no_number(engine: Engine, name: str, seconds: object) -> None:
    if seconds is None and name == "once":
        return  # as long as the loop says
    with pytest.raises(TypeError, match=r"is a number of seconds.*Nothing was changed"):
        waits(engine)[name](seconds)


@pytest.mark.parametrize("name", WAITS)
def test_a_wait_of_what_never_comes(engine: Engine, name: str) -> None:
    """A NaN is neither before nor behind any deadline: it would be looked at again for ever."""
    for nan in (math.nan, np.float32("nan")):
        with pytest.raises(BadOption, match=r"=nan: is no number of seconds"):
            waits(engine)[name](nan)


@pytest.mark.parametrize("name", WAITS)
@pytest.mark.parametrize(
    "seconds", [0, -1, 1, np.int8(0), np.uint8(200), np.float32(0.5), Fraction(1, 3), -math.inf],
    ids=repr,
)  # fmt: skip
def test_any_real_number_is_a_wait(engine: Engine, name: str, seconds: object) -> None:
    waits(engine)[name](seconds)


def test_what_no_float_can_hold_is_for_ever(engine: Engine) -> None:
    for seconds in (10**400, math.inf):
        assert len(engine.read("t", timeout=seconds)) == 1
        assert len(engine.consumer("t", group="g").poll(timeout=seconds)) == 1
        assert engine.settle(timeout=seconds).committed == ()
        assert engine.read("empty", timeout=-seconds) == []


@pytest.mark.parametrize("seconds", ["5", Decimal(1), True, b""], ids=repr)
def test_a_lease_of_what_is_no_number(engine: Engine, seconds: Any) -> None:
    with pytest.raises(TypeError, match="lease_seconds"):
        engine.consumer("t", group="g", lease_seconds=seconds)
    with pytest.raises(TypeError, match="check_after"):
        engine.transaction(check_after=seconds)


@pytest.mark.parametrize(
    "seconds", [10**400, math.inf, 2 * SECONDS_MAX, math.nan, 0, -1, -math.inf]
)
def test_a_lease_that_ends_never_or_has_ended(engine: Engine, seconds: float) -> None:
    with pytest.raises(BadOption, match="lease_seconds"):
        engine.consumer("t", group="g", lease_seconds=seconds)


@pytest.mark.parametrize("seconds", [10**400, math.inf, math.nan, -1, 1e10])
def test_a_check_after_what_is_too_late(engine: Engine, seconds: float) -> None:
    with pytest.raises(BadOption, match="check_after"):
        engine.transaction(check_after=seconds)


def test_numbers_of_numpy_are_seconds(engine: Engine) -> None:
    """An int8 has no room for the milliseconds."""
    one: Any = np.int8(1)
    assert engine.transaction(check_after=one)._buffer.check_after_ms == 1000
    engine.consumer("t", group="g", lease_seconds=one).poll()


# --- places --------------------------------------------------------------------------------------


def readers(engine: Engine, disk: CrashDisk) -> Iterator[Any]:
    engine.checkpoint()
    yield engine
    with fmq.open("data", read_only=True, disk=disk) as reader:
        yield reader


@pytest.mark.parametrize("limit", ["x", None, 1.5, math.nan, -math.inf, [], b""], ids=repr)
def test_a_limit_that_is_no_int(engine: Engine, disk: CrashDisk, limit: Any) -> None:
    for one in readers(engine, disk):
        for call in (one.read, one.read_batch):
            with pytest.raises(TypeError, match="limit"):
                call("t", limit=limit)
    with pytest.raises(TypeError, match="limit"):
        engine.consumer("t", group="g").poll(limit=limit)
    for call in (engine.feedback.ask, lambda _, limit: CheckLoop(engine.feedback, {}, limit=limit)):
        with pytest.raises(TypeError, match="limit"):
            call("p", limit=limit)


def test_a_negative_limit_is_no_way_to_ask_for_nothing(engine: Engine, disk: CrashDisk) -> None:
    for one in readers(engine, disk):
        assert one.read("t", limit=0) == []
        with pytest.raises(BadOption, match="limit"):
            one.read("t", limit=-1)


@pytest.mark.parametrize(
    "kind", [np.uint8, np.int8, np.int64, bool], ids=lambda kind: kind.__name__
)
def test_ints_of_others_become_ours(engine: Engine, disk: CrashDisk, kind: Any) -> None:
    """A numpy.uint8 would overflow at the first sum, and no JSON takes a numpy.int64."""
    with opened(CrashDisk()) as many:
        many.send_many("u", [b"%d" % number for number in range(300)])
        last: Any = kind(200) if kind is np.uint8 else kind(1)
        found = many.read("u", offset=last, limit=150, queue=kind(0))
        assert [message.offset for message in found[:2]] == [int(last), int(last) + 1]
        assert type(found[0].offset) is int
        batch = many.read_batch("u", offset=last, limit=kind(1))
        assert batch is not None
        assert (type(batch.offset), type(batch.next), type(batch.queue)) == (int, int, int)
    for one in readers(engine, disk):
        (message,) = one.read("four", queue=np.uint8(3))
        assert type(message.queue) is int
        assert len(one.read("t", limit=kind(1))) == 1


def test_ints_of_others_are_no_options() -> None:
    """Options are written down, compared and shown: there an int is an int."""
    size: Any = np.int64(4096)
    for name in ("queues", "transactions_max", "segment_bytes"):
        with pytest.raises(BadOption, match="a whole number, an int"):
            fmq.Options(**{name: size})


def test_a_queue_beyond_those_of_the_topic(engine: Engine, disk: CrashDisk) -> None:
    """Nothing will ever come there; to a topic that is not there yet something may."""
    for one in readers(engine, disk):
        for call in (one.read, one.read_batch):
            with pytest.raises(BadName, match="has queues 0 to 0"):
                call("t", queue=1)
            with pytest.raises(BadName, match="has queues 0 to 3"):
                call("four", queue=4)
            assert not call("four", queue=2)
            assert not call("unknown", queue=99)
    with pytest.raises(BadName, match="has queues"):
        engine.read("t", queue=99, timeout=math.inf)


# --- names ---------------------------------------------------------------------------------------

NO_NAMES = [5, b"x", True, None, (), [], {}, bytearray(b"x"), ["x"], np.array([1, 2])]


@pytest.mark.parametrize("name", NO_NAMES, ids=repr)
def test_a_name_that_is_no_str(engine: Engine, disk: CrashDisk, name: Any) -> None:
    """Some of them cannot even be looked up in a dict."""
    calls: list[Callable[[], Any]] = [
        lambda: engine.send(name, b""),
        lambda: engine.send(name, b"", key="k", queue=0),
        lambda: engine.send_many(name, [b""]),
        lambda: engine.send_many(name, []),
        lambda: engine.transaction().send(name, b""),
        lambda: engine.transaction().send(name, b"", tag="t"),
        lambda: engine.transaction().send_many(name, [b""]),
        lambda: engine.transaction().send_many(name, []),
        lambda: engine.consumer("t", group=name),
        lambda: engine.consumer([name], group="g"),
        lambda: engine.checker(name),
        lambda: engine.feedback.ask([name], wait=0),
        lambda: engine.feedback.ask("p", [name], wait=0),
        lambda: engine.feedback.ask_about(name),
        lambda: engine.feedback.resume(name),
        lambda: engine.outcome(name),
        lambda: engine.decide(name, "commit"),
        lambda: CheckLoop(engine.feedback, {}, topics=[name]),
    ]
    if not isinstance(name, (tuple, list, dict)):
        calls += [
            lambda: engine.consumer(name, group="g"),
            lambda: engine.feedback.ask(name, wait=0),
        ]
        if name is not None:
            calls.append(lambda: engine.feedback.ask("p", name, wait=0))
    if name is not None:
        calls += [
            lambda: engine.send("t", b"", producer=name),
            lambda: engine.send_many("t", [b""], producer=name),
            lambda: engine.send_many("t", [], producer=name),
            lambda: engine.transaction(producer=name),
            lambda: engine.transaction(producer=name, bind=object()),
            lambda: engine.transaction(tx_id=name),
            lambda: engine.decide("T", "commit", reason=name),
            lambda: engine.decide("T", "commit", decided_by=name),
            lambda: engine.decide("T", "commit", seal=name),
        ]
    must_be_refused(calls)
    for one in readers(engine, disk):
        calls = [
            lambda one=one: one.read(name),  # type: ignore[misc]
            lambda one=one: one.read_batch(name),  # type: ignore[misc]
            lambda one=one: one.outcome(name),  # type: ignore[misc]
        ]
        if name is not None:
            calls += [
                lambda one=one: one.queues(name),  # type: ignore[misc]
                lambda one=one: one.groups(name),  # type: ignore[misc]
            ]
        must_be_refused(calls)


def must_be_refused(calls: list[Callable[[], object]]) -> None:
    for number, call in enumerate(calls):
        with pytest.raises(TypeError, match=r"is a str"):
            raise AssertionError(f"call {number} gave {call()!r}")


@pytest.mark.parametrize("tx_id", ["\udcff", "", "x" * 300, "é", "a\nb"], ids=ascii)
def test_a_reader_is_asked_for_an_id_that_none_can_have(
    engine: Engine, disk: CrashDisk, tx_id: str
) -> None:
    for one in readers(engine, disk):
        with pytest.raises(BadName):
            one.outcome(tx_id)


def test_names_that_mean_nobody(engine: Engine) -> None:
    """A producer without a name is "", in what asks and in what sends."""
    assert engine.feedback.ask("", wait=0) == []
    assert engine.feedback.ask([], wait=0) == []
    engine.checker("")(lambda question: "unknown")
    assert engine.groups("nobody") == []
    assert engine.queues("nothing") == []


# --- questions, answers and functions ------------------------------------------------------------


@pytest.mark.parametrize("wrong", [None, 5, "T", [], object()], ids=repr)
def test_an_answer_to_what_is_no_question(engine: Engine, wrong: Any) -> None:
    for answer in ("commit", "unknown"):
        with pytest.raises(TypeError, match="takes a Question"):
            engine.feedback.answer(wrong, answer)


@pytest.mark.parametrize("wrong", [None, 5, [], "yes", np.array(["commit", "rollback"])], ids=repr)
def test_a_decision_that_is_none(engine: Engine, wrong: Any) -> None:
    tx = engine.transaction(tx_id="T", check_after=0)
    tx.prepare()
    (question,) = engine.feedback.ask_about("T")
    for call in (
        lambda: engine.feedback.answer(question, wrong),
        lambda: engine.decide("T", wrong),
    ):
        with pytest.raises(BadOption, match="must be"):
            call()
    tx.rollback()


def test_a_reason_that_is_no_text_counts_as_no_answer(engine: Engine) -> None:
    tx = engine.transaction(tx_id="T", check_after=0)
    tx.prepare()
    (question,) = engine.feedback.ask_about("T")
    wrong: Any = 5
    for answer in ("commit", "unknown"):
        with pytest.raises(TypeError, match="reason"):
            engine.feedback.answer(question, answer, reason=wrong)
    outcome = engine.feedback.answer(question, "rollback", reason="so be it")
    assert outcome is not None
    assert (outcome.asked, outcome.reason) == (1, "so be it")


@pytest.mark.parametrize(
    "messages", [None, 5, "ab", b"ab", ["ab"], [("t",)], [5], [b"ab"]], ids=repr
)
def test_messages_that_are_no_pairs(engine: Engine, messages: Any) -> None:
    with pytest.raises(TypeError, match=r"pair.*send_in_transaction\(\["):
        engine.send_in_transaction(messages, lambda tx: "commit", tx_id="T")
    engine.transaction(tx_id="T").rollback()


@pytest.mark.parametrize("local", [None, 5, "commit", []], ids=repr)
def test_a_part_of_the_program_that_cannot_be_called(engine: Engine, local: Any) -> None:
    """It was found out behind the prepare, and the transaction stayed undecided."""
    with pytest.raises(TypeError, match=r"local=.*must be a function"):
        engine.send_in_transaction([("t", b"x")], local, tx_id="T")
    engine.transaction(tx_id="T").rollback()


def test_a_part_of_the_program_that_says_something_else(engine: Engine) -> None:
    said: Any = np.array(["commit", "rollback"])
    with pytest.raises(BadOption, match=r"local\(\) returned"):
        engine.send_in_transaction([("t", b"x")], lambda tx: said, tx_id="T")
    engine.decide("T", "rollback")


def test_a_checker_that_is_registered_for_nobody(engine: Engine) -> None:
    """Without its parentheses the decorator took the function for the name, and said nothing."""

    def check(question: fmq.Question) -> Any:
        raise AssertionError

    with pytest.raises(TypeError, match=r"@engine\.checker\('name'\)"):
        engine.checker(check)  # type: ignore[arg-type]
    with pytest.raises(BadName):
        engine.checker("a\nb")
    wrong: Any
    for wrong in (None, 5, "commit", []):
        with pytest.raises(TypeError, match=r"checker=.*must be a function"):
            engine.checker("p")(wrong)
    assert engine.checker("p")(check) is check


# --- opening -------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["a\0b", "\ud800", "a/\0"], ids=ascii)
def test_a_path_that_no_machine_can_have(path: str) -> None:
    for disk in (None, CrashDisk()):
        for call in (
            lambda disk=disk: fmq.open(path, disk=disk),
            lambda disk=disk: fmq.open(path, disk=disk, read_only=True),
            lambda disk=disk: fmq.check(path, disk=disk),
        ):
            with pytest.raises(BadName, match=r"path .*Nothing was"):
                call()


def test_an_empty_path_names_nothing() -> None:
    """It was told that its parent directory does not exist."""
    for call in (fmq.open, fmq.check):
        with pytest.raises(NotAStore, match="empty path"):
            call("")


NO_DOORS = [5, False, 0, "", "x", [], (), {}, object()]


@pytest.mark.parametrize("wrong", NO_DOORS, ids=repr)
def test_a_door_that_leads_nowhere(tmp_path: Path, wrong: Any) -> None:
    """Nothing is made, neither by what is wrong nor by what would have taken its place."""
    path = tmp_path / "data"
    for read_only in (False, True):
        with pytest.raises(TypeError, match=r"disk=.*Nothing was opened"):
            fmq.open(path, disk=wrong, read_only=read_only)
        with pytest.raises(TypeError, match=r"clock=.*Nothing was opened"):
            fmq.open(path, clock=wrong, read_only=read_only)
    with pytest.raises(TypeError, match=r"disk=.*Nothing was opened"):
        fmq.check(path, disk=wrong)
    assert not path.exists()


@pytest.mark.parametrize("wrong", ["no", "", 0, 1, None, np.False_], ids=repr)
def test_a_flag_that_is_merely_true_or_false(tmp_path: Path, wrong: Any) -> None:
    """`read_only="no"` opened for reading, and `background="no"` with threads."""
    disk = CrashDisk()
    opened(disk).close()
    for flag in ("read_only", "background"):
        with pytest.raises(TypeError, match=rf"{flag}=.*True or False.*Nothing was opened"):
            fmq.open("data", disk=disk, **{flag: wrong})
        with pytest.raises(TypeError, match=rf"{flag}=.*True or False.*Nothing was opened"):
            fmq.open(tmp_path / "data", **{flag: wrong})
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("wrong", [5, False, 0, "", "x", [], (), object()], ids=repr)
def test_databases_that_are_no_mapping(tmp_path: Path, wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"resolve=.*Nothing was opened"):
        fmq.open(tmp_path / "data", resolve=wrong)
    assert not (tmp_path / "data").exists()


def test_databases_of_nobody(tmp_path: Path) -> None:
    for producer, error in ((5, TypeError), (None, TypeError), ("a\nb", BadName)):
        with pytest.raises(error):
            fmq.open(tmp_path / "data", resolve={producer: "sqlite:///x"})  # type: ignore[dict-item]
    assert not (tmp_path / "data").exists()
    fmq.open(tmp_path / "data", resolve={}).close()


def test_who_only_looks_resolves_nothing() -> None:
    """It was not said, and nothing was asked."""
    disk = CrashDisk()
    opened(disk).close()
    resolve: Any
    for resolve in ({"p": "sqlite:///x"}, {}, 5):
        with pytest.raises(TypeError, match=r"resolve=.*read_only=True"):
            fmq.open("data", disk=disk, read_only=True, resolve=resolve)  # type: ignore[call-overload]
