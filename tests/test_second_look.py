"""A reader whom retention overtakes between two steps looks again: what is gone is not damage."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import fmq
from fmq import ReadOnlyEngine
from fmq.disk import Disk
from fmq.errors import OffsetGone, UnknownTransaction
from fmq.testing import CrashDisk, FakeClock
from tests.small import fill, opened, segments


def drop_the_oldest(disk: Disk, clock: FakeClock) -> None:
    """What another process does meanwhile."""
    first = segments(disk)[0]
    clock.advance(100)
    with opened(disk, clock, retain_seconds=1) as engine:
        engine.send("other", b"x")
    assert first not in segments(disk)


@pytest.mark.parametrize(
    ("look", "gone"),
    [
        (lambda reader: reader.outcome("old"), UnknownTransaction),
        (lambda reader: reader.read("t"), OffsetGone),
    ],
)
def test_what_is_dropped_between_the_news_and_the_look_is_gone_and_not_damaged(
    look: Callable[[ReadOnlyEngine], object], gone: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, clock = CrashDisk(), FakeClock()
    with opened(disk, clock) as engine:
        with engine.transaction(tx_id="old") as tx:
            tx.send("t", b"first")
        for _ in range(3):
            fill(engine, "t")
    with fmq.open("data", read_only=True, disk=disk, clock=clock) as reader:
        refresh, looks = reader.refresh, []

        def overtaken() -> None:
            refresh()
            looks.append("refreshed")
            if len(looks) == 1:
                drop_the_oldest(disk, clock)

        monkeypatch.setattr(reader, "refresh", overtaken)
        with monkeypatch.context() as no_first_look:
            # `read` looks once before it asks for news: it is to meet the drop, too.
            no_first_look.setattr(reader._messages, "batch", first_look_fails(reader))
            with pytest.raises(gone):
                look(reader)
        assert len(looks) > 1
        assert reader.damage is None


def first_look_fails(reader: ReadOnlyEngine) -> Callable[..., object]:
    batch, met = reader._messages.batch, []

    def once_not(*place: object) -> object:
        met.append(place)
        return batch(*place) if len(met) > 1 else None  # type: ignore[arg-type]

    return once_not
