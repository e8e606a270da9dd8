"""All readers of a page share its live part."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Event, Thread

from fmq.dash.live_parts import FRESH_SECONDS, KEPT_SECONDS, LiveParts
from fmq.testing import FakeClock


class Maker:
    """Makes parts, each of which takes `seconds`, and counts them."""

    def __init__(self, clock: FakeClock, seconds: float = 0.0) -> None:
        self.made: list[str] = []
        self.parts = LiveParts(self._make, clock)
        self._clock = clock
        self._seconds = seconds

    def _make(self, page: str, query: Mapping[str, str]) -> str:
        self._clock.advance(self._seconds)
        self.made.append(page + query.get("topic", ""))
        return f"{page} {len(self.made)}"


def test_a_part_is_made_once_for_all_readers_and_anew_when_it_is_old() -> None:
    clock = FakeClock()
    maker = Maker(clock)
    assert [maker.parts.get("messages", {"topic": "a"}) for _ in range(5)] == ["messages 1"] * 5
    assert maker.parts.get("messages", {"topic": "b"}) == "messages 2"
    clock.advance(FRESH_SECONDS)
    assert maker.parts.get("messages", {"topic": "a"}) == "messages 3"
    assert maker.made == ["messagesa", "messagesb", "messagesa"]


def test_a_part_that_takes_long_is_made_less_often() -> None:
    clock = FakeClock()
    maker = Maker(clock, seconds=10)
    maker.parts.get("overview", {})
    clock.advance(19)
    assert maker.parts.get("overview", {}) == "overview 1"
    clock.advance(1)
    assert maker.parts.get("overview", {}) == "overview 2"


def test_a_part_that_nobody_asks_for_is_forgotten() -> None:
    clock = FakeClock()
    maker = Maker(clock)
    for topic in range(100):
        maker.parts.get("messages", {"topic": str(topic)})
    clock.advance(FRESH_SECONDS + KEPT_SECONDS + 1)
    maker.parts.get("overview", {})
    assert len(maker.parts._parts) == 1


def test_readers_see_the_part_before_while_a_new_one_is_made() -> None:
    clock = FakeClock()
    begun, goes_on = Event(), Event()
    said = ["old", "new"]

    def make(page: str, query: Mapping[str, str]) -> str:
        if len(said) == 1:
            begun.set()
            assert goes_on.wait(60)
        return said.pop(0)

    parts = LiveParts(make, clock)
    assert parts.get("overview", {}) == "old"
    clock.advance(FRESH_SECONDS)
    other = Thread(target=parts.get, args=("overview", {}))
    other.start()
    assert begun.wait(60)
    assert parts.get("overview", {}) == "old"
    goes_on.set()
    other.join(60)
    assert parts.get("overview", {}) == "new"
