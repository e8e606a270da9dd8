"""`fmq replay`: what was sent in a time is sent again into another topic, all or nothing, once."""

from __future__ import annotations

from pathlib import Path

import pytest

import fmq
from fmq.testing import FakeClock
from tests.cli.command import fmq_json, fmq_piped


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Ten messages, a minute apart from each other."""
    clock = FakeClock()
    with fmq.open(tmp_path / "d", clock=clock, background=False) as engine:
        for number in range(10):
            headers = {"n": str(number)}
            engine.send("t", b"%d" % number, key="k", headers=headers, message_id=f"m{number}")
            clock.advance(60)
        engine.send("other", b"x")
    return tmp_path / "d"


def sent_again(path: Path) -> list[bytes]:
    with fmq.open(path, read_only=True) as engine:
        return [each.body for each in engine.read("u")] if engine.queues("u") else []


def message(path: Path, number: int) -> fmq.Message:
    with fmq.open(path, read_only=True) as engine:
        found: fmq.Message = engine.read("t")[number]
        return found


def test_what_lies_between_two_times_is_sent_again(path: Path) -> None:
    bounds = [str(message(path, number).time) for number in (3, 6)]
    said = fmq_json(
        *("replay", path, "--from", bounds[0], "--to", bounds[1]), *("--topic", "t", "--into", "u")
    )
    (facts,) = said.of("replay")
    assert (said.code, facts["messages"]) == (0, 3)
    assert sent_again(path) == [b"3", b"4", b"5"]
    with fmq.open(path, read_only=True) as engine:
        (first, *_) = engine.read("u")
        assert (first.key, first.headers, first.message_id) == ("k", {"n": "3"}, None)


def test_positions_are_bounds_too_and_a_mark_does_it_once(path: Path) -> None:
    first = message(path, 7).position
    for times in (1, 2):
        line = ("replay", path, "--from", first, "--topic", "t", "--into", "u", "--mark", "again")
        said = fmq_json(*map(str, line))
        assert (said.code, said.of("replay")[0]["was_there"]) == (0, times == 2)
        assert sent_again(path) == [b"7", b"8", b"9"]
    assert fmq_json("replay", path, "--topic", "t", "--into", "all").code == 0
    with fmq.open(path, read_only=True) as engine:
        assert len(engine.read("all")) == 10


def test_a_topic_is_not_replayed_into_itself(path: Path) -> None:
    for wrong in (["--into", "t"], ["--into", "u", "--from", "soon"]):
        with pytest.raises(SystemExit):
            fmq_piped("replay", path, "--topic", "t", *wrong)
    assert fmq_json("replay", path, "--topic", "nothing", "--into", "u").of("replay")
    assert sent_again(path) == []


def test_what_is_not_there_sets_no_mark(path: Path) -> None:
    """A wrong time or topic can be put right, and the mark still does it once."""
    for wrong in (["--topic", "t", "--from", "2999-01-01"], ["--topic", "T"]):
        said = fmq_json("replay", path, *wrong, "--into", "u", "--mark", "again")
        assert said.of("replay") == [{"what": "replay", "messages": 0, "was_there": False}]
        assert "Nothing was sent, and no mark set." in said.error
    said = fmq_json("replay", path, "--topic", "t", "--into", "u", "--mark", "again")
    assert (said.of("replay")[0]["messages"], len(sent_again(path))) == (10, 10)
    # Once it is set, it says that this was done, whatever is there by now.
    said = fmq_json("replay", path, "--topic", "T", "--into", "u", "--mark", "again")
    assert said.of("replay") == [{"what": "replay", "messages": 0, "was_there": True}]
    assert "no mark set" not in said.error
