"""A stream of bytes becomes frames, however it is cut."""

from __future__ import annotations

import random
import tracemalloc

from fmq.wire.frames import Frame, Op, Splitter, frame

PAYLOADS = [b"", b"a", b"", b"b" * 11, b"c" * 12, b"d" * 5000, b"e" * 20_000, b"", b"f"]
STREAM = b"".join(
    frame(Op.SEND, number, payload, flags=number % 2, handle=number + 7)
    for number, payload in enumerate(PAYLOADS)
)
FRAMES = [
    Frame(Op.SEND, number % 2, number + 7, number, payload)
    for number, payload in enumerate(PAYLOADS)
]


def test_the_cuts_of_a_stream_change_no_frame() -> None:
    rng = random.Random(5)
    for most in (1, 3, 13, 700, 9000, len(STREAM)):
        for _ in range(30):
            splitter, found, at = Splitter(1 << 20), list[Frame](), 0
            while at < len(STREAM):
                end = at + rng.randint(1, most)
                found += splitter.feed(STREAM[at:end])
                at = end
            assert found == FRAMES
            assert splitter.is_empty


def test_a_stream_that_ends_inside_of_a_frame_leaves_the_splitter_not_empty() -> None:
    data = frame(Op.SEND, 1, b"abc")
    for cut in range(1, len(data)):
        splitter = Splitter(1 << 20)
        assert splitter.feed(data[:cut]) == []
        assert not splitter.is_empty
        assert splitter.feed(data[cut:]) == [Frame(Op.SEND, 0, 0, 1, b"abc")]
        assert splitter.is_empty


def test_a_payload_in_tiny_parts_takes_little_more_memory_than_its_bytes() -> None:
    data = frame(Op.SEND, 1, bytes(200_000))
    splitter = Splitter(1 << 20)
    tracemalloc.start()
    try:
        for at in range(0, len(data) - 2, 2):
            splitter.feed(data[at : at + 2])
        took, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert took < 300_000
