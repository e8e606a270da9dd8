"""Damage hides nothing from a reader in silence: no message, no transaction, no decision."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from fmq import ReadOnlyEngine
from fmq.errors import (
    Damaged,
    UnknownTransaction,
)
from fmq.store.journal.durable_page import PAGE
from fmq.testing import CrashDisk
from tests.read_only.looking import looking, without_pages
from tests.small import bodies, content, flip, flip_two, opened, overwrite, remove, segments


@pytest.mark.parametrize("looked_before", [True, False])
@pytest.mark.parametrize("pages", [True, False])
def test_zeros_in_place_of_durable_bytes_are_damage(looked_before: bool, pages: bool) -> None:
    """They are more than a refresh reads at once. One reader had seen the rest as zeros."""
    disk = CrashDisk()
    with opened(disk, segment_bytes=8 << 20, first_segment_bytes=8 << 20) as engine:
        engine.send("t", b"0")
        start = engine.stats().position
        reader = looking(disk if pages else without_pages(disk))
        if looked_before:
            reader.refresh()
        engine.send("t", b"x" * (3 << 20))
        end = engine.stats().position
        engine.send("t", b"1")
        engine.checkpoint()
        (name,) = segments(disk)
        overwrite(disk, name, start, bytes(end - start))
        if not looked_before:
            reader.close()
            remove(disk, "checkpoint.0", "checkpoint.1")
            reader = looking(disk if pages else without_pages(disk))
        with reader:
            reader.refresh()
            assert reader.damage is not None
            with pytest.raises(Damaged):
                reader.undecided()


def in_doubt(disk: CrashDisk) -> None:
    """A directory closed cleanly: U was prepared, C prepared and committed, one message besides."""
    with opened(disk) as engine:
        for tx_id in "UC":
            tx = engine.transaction(tx_id=tx_id)
            tx.send("t", tx_id.encode())
            tx.prepare()
        tx.commit()
        engine.send("t", b"last")


def told(reader: ReadOnlyEngine) -> tuple[list[str], str, str]:
    undecided = [each.tx_id for each in reader.undecided()]
    return undecided, reader.outcome("U").state, reader.outcome("C").state


@pytest.mark.parametrize(("wound", "step", "least"), [(flip, 7, 0), (flip_two, 5, 100)])
def test_flipped_bits_hide_no_transaction_in_silence(wound: Any, step: int, least: int) -> None:
    """What the reader says of transactions is true, or it raises Damaged."""
    disk = CrashDisk()
    in_doubt(disk)
    (name,) = segments(disk)
    with looking(disk) as reader:
        assert told(reader) == (["U"], "undecided", "committed")
    refused = 0
    for place in range(0, len(content(disk)[name].rstrip(b"\0")), step):
        wound(disk, name, place)
        try:
            with looking(disk) as reader:
                assert told(reader) == (["U"], "undecided", "committed"), place
                assert told(reader) == (["U"], "undecided", "committed"), place  # and again
        except Damaged:
            refused += 1
            with suppress(Damaged), looking(disk) as reader:
                # A damaged body ends nothing, and costs its message when that is read.
                stopped = reader.damage is not None
                assert set(bodies(reader, "t")) <= {b"C", b"last"}
                reader.refresh()
                assert (reader.damage is not None) == stopped, "looking again makes nothing whole"
        wound(disk, name, place)
    assert refused > least


def test_damage_after_the_checkpoint_hides_no_decision_in_silence(disk: CrashDisk) -> None:
    """A decision before the damage is known. Anything else may have changed after it."""
    with opened(disk) as engine:
        decided, undecided = engine.transaction(tx_id="C"), engine.transaction(tx_id="A")
        for tx in (decided, undecided):
            tx.send("t", b"1")
            tx.prepare()
        decided.commit()
        engine.checkpoint()
        position = engine.stats().position
        engine.send("t", b"damaged")
        undecided.commit()
        engine.send("t", b"vouches for what is before it")
        left = disk.after_kill()
    flip_two(left, segments(left)[0], position + 20)
    with looking(left) as reader:
        assert reader.damage is not None
        assert reader.outcome("C").state == "committed"
        for look in (reader.undecided, lambda: reader.outcome("A"), lambda: reader.outcome("B")):
            with pytest.raises(Damaged):
                look()
        assert bodies(reader, "t") == [b"1"]


def test_the_error_for_an_unproven_prepare_names_the_remedy(
    disk: CrashDisk,
) -> None:
    """The writer was killed after a durable prepare that no later record proves durable, and its
    page is gone.
    """
    with opened(disk) as engine:
        engine.send("t", b"1")
        tx = engine.transaction(tx_id="T")
        tx.send("t", b"2")
        tx.prepare()
        with pytest.raises(UnknownTransaction) as caught:
            engine.outcome("U")
        assert "read_only" not in str(caught.value)  # a process that writes sees everything
        left = disk.after_kill()
        remove(left, PAGE)
    with looking(left) as reader:
        with pytest.raises(UnknownTransaction) as caught:
            reader.outcome("T")
        assert f"after position {reader.visible_to}:" in str(caught.value)
        assert "Opening it for writing tells." in str(caught.value)
        with opened(left) as engine:
            assert engine.outcome("T").state == "undecided"
            engine.checkpoint()
            assert reader.outcome("T").state == "undecided"


def test_messages_after_damage_never_get_the_offsets_of_hidden_ones(
    disk: CrashDisk,
) -> None:
    """A record below the checkpoint is damaged and the part is gone. The index is built from the
    segment up to there, and goes on with what came after the checkpoint.
    """
    with opened(disk) as engine:
        at = [engine.send("t", b"%d" % number).position for number in range(3)]
        engine.checkpoint()
        for number in range(3, 6):
            engine.send("t", b"%d" % number)
        killed = disk.after_kill()
    flip_two(killed, segments(killed)[0], at[1] + 50)
    remove(killed, segments(killed)[0].replace(".seg", ".part"))
    with looking(killed) as reader:
        for _ in range(2):
            assert reader.damage is not None
            batch = reader.read_batch("t", offset=0)
            assert batch is not None
            assert batch.bodies == (b"0",)
            for hidden in (1, 2):
                with pytest.raises(Damaged, match=r"damaged in front of it|does not match"):
                    reader.read("t", offset=hidden)
            assert bodies(reader, "t", offset=3) == [b"3", b"4", b"5"]
            reader.refresh()
