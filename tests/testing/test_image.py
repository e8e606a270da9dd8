"""An image is a bytearray that is quick to copy, and nothing else."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from fmq.testing.image import Image

Step = tuple[str, int, bytes]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["write", "clear", "grow", "copy"]),
        st.integers(0, 20),
        st.binary(max_size=9),
    )
)


def put(model: bytearray, offset: int, data: bytes) -> None:
    if len(model) < offset:
        model.extend(bytes(offset - len(model)))
    model[offset : offset + len(data)] = data


@settings(deadline=None)
@given(STEPS, st.integers(0, 40), st.integers(0, 40))
def test_an_image_and_its_copies_have_the_bytes_of_a_model(
    steps: list[Step], offset: int, size: int
) -> None:
    image, model = Image(), bytearray()
    left: list[tuple[Image, bytes]] = []
    for what, place, data in steps:
        image = image.own()
        match what:
            case "write" if data:
                image.write(place, data)
                put(model, place, data)
            case "clear":
                image.clear(place)
                put(model, 0, bytes(place))
            case "grow":
                image.grow(place)
                put(model, len(model), bytes(max(0, place - len(model))))
            case "copy":
                left.append((image.share(), bytes(model)))
        image.digest()  # which must not be remembered for longer than it is right
    assert image.read(offset, size) == model[offset : offset + size]
    for each, expected in [*left, (image, bytes(model))]:
        assert each.size == len(expected)
        assert each.read(0, 100) == expected
        fresh = Image()
        fresh.write(0, expected)
        assert each.digest() == fresh.digest()


@settings(deadline=None)
@given(st.binary(max_size=5), st.binary(max_size=5))
def test_digests_differ_if_bytes_differ(one: bytes, other: bytes) -> None:
    images = []
    for data in (one, other):
        image = Image()
        image.write(0, data)
        images.append(image)
    assert (images[0].digest() == images[1].digest()) == (one == other)


def test_zeros_at_the_end_change_the_digest() -> None:
    short, long = Image(), Image()
    short.grow(5)
    long.grow(6)
    assert short.digest() != long.digest()
