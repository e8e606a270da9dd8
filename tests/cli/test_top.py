"""`fmq top`: rates are the differences of two looks, and nothing is stopped by looking."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

import fmq
from fmq.cli.top import line_of_bars
from fmq.findings.rates import (
    catch_up_said,
    compared,
    disk_said,
    growth_said,
    look,
    rate_said,
    retention_said,
    without_rates,
)
from tests.cli.command import COMMAND, ENVIRONMENT, fmq_json, fmq_table

FAST = ("--interval", "0.01")


@pytest.mark.parametrize("is_live", [False, True])
def test_top_in_a_pipe_prints_once_and_ends(shop: Path, *, is_live: bool) -> None:
    engine = fmq.open(shop) if is_live else None
    if engine is not None:
        engine.serve()
    done = fmq_json("top", shop, *FAST)
    assert (done.code, done.error) == (0, "")
    (top,) = done.of("top")
    assert (top["undecided"], top["clients"]) == (1, 1 if is_live else None)
    assert top["free_bytes"] > 0 and top["messages_per_second"] == 0
    (group,) = done.of("group")
    assert (group["group"], group["lag"]) == ("billing", 2)
    assert group["in_hand"] == (0 if is_live else None)
    if engine is not None:
        engine.close()


def test_rates_are_differences_of_two_looks(tmp_path: Path) -> None:
    """Two seconds pass between the looks, by the clock that they note."""
    with fmq.open(tmp_path / "d", fmq.Options(retain_bytes=1 << 20)) as engine:
        engine.send_many("t", [b"x"] * 10)
        with (
            engine.serve(),
            fmq.connect(tmp_path / "d") as client,
            engine.consumer("t", group="g") as consumer,
        ):
            held = consumer.poll(limit=4)
            before = look(client)
            engine.send_many("t", [b"x" * 1000] * 2)
            for each in held:
                each.ack()
            after = look(client)
            top, group = compared(before, replace(after, at=before.at + 2))
    assert (top["messages_per_second"], top["syncs_per_second"]) == (1.0, pytest.approx(1, abs=2))
    assert top["bytes_per_second"] > 1000
    assert 0 < top["seconds_to_retention"] < 1100 and top["seconds_to_full"] > 0
    assert (group["acks_per_second"], group["arrive_per_second"]) == (2.0, 1.0)
    assert (group["lag"], group["seconds_to_catch_up"]) == (8, 8.0)
    assert [each.infos[0].in_hand for each in (before, after)] == [4, 0]
    assert (group["in_hand"], group["members"]) == (0, 1)


def test_a_group_that_is_moved_back_has_no_negative_rate(shop: Path) -> None:
    with fmq.open(shop, background=False) as engine:
        before = look(engine)
        engine.group("billing").seek("audit", to="earliest")
        after = look(engine)
    _, group = compared(before, replace(after, at=before.at + 1, now=after.now + timedelta(1)))
    assert group["acks_per_second"] == 0 and group["seconds_to_catch_up"] is None


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (fmq.Options(), "drops what every group has acked above"),
        (fmq.Options(retain_bytes=1 << 30), "drops above 1.0 GiB"),
        (fmq.Options(retain_seconds=86400.0), "drops what is older than 1.0 d"),
        (fmq.Options(retain_acked_bytes=None), "drops nothing"),
    ],
)
def test_top_says_which_segments_retention_drops(
    tmp_path: Path, options: fmq.Options, says: str
) -> None:
    with fmq.open(tmp_path / "d", options) as engine, engine.serve():
        engine.send("t", b"x")
        assert says in fmq_table("top", tmp_path / "d", "--once", *FAST)


@pytest.mark.parametrize("keeps", [False, True])
def test_top_says_that_unread_messages_stay_beyond_the_limit(tmp_path: Path, keeps: bool) -> None:
    options = fmq.Options(retain_bytes=1 << 20, keep_unread=keeps)
    with fmq.open(tmp_path / "d", options) as engine:
        engine.create_group("slow", "t")
        before = look(engine)
        engine.send("t", b"x" * 1000)
        after = look(engine)
    top, group = compared(before, replace(after, at=before.at + 1, free_bytes=1 << 40))
    assert ("not acked by slow stay until they are acked" in retention_said(top)) is keeps
    waits, begins = "if retention has to wait until then", "but retention begins before that"
    assert disk_said(top).endswith(waits if keeps else begins)
    assert disk_said(top | {"seconds_to_full": 1.0}).endswith("before retention begins")
    assert "undecided" not in retention_said(top)
    assert "until that is decided" in retention_said(top | {"undecided": 1})
    assert catch_up_said(group) == "never at this rate"
    assert catch_up_said(group | {"lag": 0}) == "now"
    assert catch_up_said(group | {"paused": True}) == "paused"


def test_a_disk_that_others_fill_is_full_by_their_rate(tmp_path: Path) -> None:
    with fmq.open(tmp_path / "d", background=False) as engine:
        before = look(engine)
        engine.send("t", b"x" * 1000)
        after = look(engine)
    before = replace(before, free_bytes=3 << 30)
    top, *_ = compared(before, replace(after, at=before.at + 1, free_bytes=2 << 30))
    assert top["seconds_to_full"] == 2 and "mostly by other files" in disk_said(top)
    top, *_ = compared(before, replace(after, at=before.at + 1, free_bytes=3 << 30))
    assert top["seconds_to_full"] > 1e6 and "other files" not in disk_said(top)


def test_one_look_shows_no_rates(shop: Path) -> None:
    with fmq.open(shop, background=False) as engine:
        sight = look(engine)
    top, group = map(without_rates, compared(sight, sight))
    said = growth_said(top["bytes_per_second"]), rate_said(group["acks_per_second"])
    assert (said, group["lag"]) == (("–", "–"), 2)
    assert "full in" not in disk_said(top)


def test_bars_show_which_values_are_large() -> None:
    assert line_of_bars([0.0, 1.0, 2.0]) == "▁▅█"
    assert line_of_bars([0.0, 0.0]) == "▁▁" and line_of_bars([]) == ""


def test_top_prints_words_and_units_on_a_terminal(shop: Path) -> None:
    said = fmq_table("top", shop, "--once", *FAST)
    assert "free" in said and "the oldest for" in said and "billing" in said


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_leaves_the_terminal_as_it_was(shop: Path) -> None:
    """Each look replaces the one before, on the other screen of the terminal, which it leaves."""
    ours, theirs = pty.openpty()
    environment = {**ENVIRONMENT, "TERM": "xterm", "COLUMNS": "100", "NO_COLOR": "1"}
    with subprocess.Popen(
        [*COMMAND, "top", shop, *FAST], stdout=theirs, stderr=subprocess.PIPE, env=environment
    ) as child:
        os.close(theirs)
        said = b""
        while said.count(b"\x1b[H") < 3:
            said += os.read(ours, 4096)
        child.send_signal(signal.SIGINT)
        while True:
            try:
                if not (more := os.read(ours, 4096)):
                    break
            except OSError:
                break
            said += more
        assert child.stderr is not None and child.stderr.read() == b""
    os.close(ours)
    assert child.returncode == 130
    assert said.count(b"\x1b[?1049h") == said.count(b"\x1b[?1049l") == 1
    assert b"\x1b[?25h" in said[said.rindex(b"\x1b[?25l") :]
    assert b"\x1b[3" not in said  # no colour
