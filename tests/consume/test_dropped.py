"""A consumer that its program drops without closing it."""

from __future__ import annotations

import gc

from fmq import Engine


def test_what_a_dropped_consumer_had_in_hand_is_free_at_once(engine: Engine) -> None:
    """Without a collection of garbage, which may be far off: no part of it may know the whole."""
    engine.send_many("t", [b"0", b"1", b"2"])

    def polled() -> list[int]:
        return [each.offset for each in engine.consumer("t", group="g").poll()]

    gc.disable()
    try:
        found = polled(), polled()
    finally:
        gc.enable()
    assert found == ([0, 1, 2], [0, 1, 2])
