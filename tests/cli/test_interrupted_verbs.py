"""Ctrl-C in a verb that takes long: it exits with 130, and the next run of it ends well."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import fmq
from fmq.cli.output import JsonOutput
from tests.cli.command import fmq_piped

COUNT = 48  # messages of 64 KiB


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    path = tmp_path / "shop"
    with fmq.open(path) as engine:
        engine.create_topic("t", queues=1)
        for number in range(COUNT):
            engine.send("t", bytes([number]) * (1 << 16), sync=False)
    return path


VERBS = {
    "backup": (("shop", "copy"), ()),
    "ship": (("shop", "place"), ("--once",)),
    "restore": (("backup", "new"), ()),
    "salvage": (("shop", "new"), ()),
    "verify": (("shop",), ()),
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("calls", [1, 2])
def test_an_interrupt_of_a_long_verb_leaves_everything_right(
    verb: str, calls: int, shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupt it where it says how far it has come. What it had begun is gone, or taken up."""
    if verb == "restore":
        fmq.backup(shop, tmp_path / "backup")
    left = [calls]

    @contextmanager
    def interrupted(self: JsonOutput) -> Iterator[Any]:
        def show(row: object) -> None:
            left[0] -= 1
            if not left[0]:
                raise KeyboardInterrupt

        yield show

    names, more = VERBS[verb]
    words = [verb, *(tmp_path / name for name in names), *more]
    with monkeypatch.context() as patch:
        patch.setattr(JsonOutput, "progress", interrupted)
        said = fmq_piped(*words, "--format", "json")
    assert (said.code, said.error, left) == (130, "", [0])
    assert fmq.check(shop).ok
    again = fmq_piped(*words, "--format", "json")
    assert again.code == 0
    assert not again.error or (verb == "restore" and "its last messages" in again.error)
    made = tmp_path / names[-1]
    if verb == "ship":
        fmq.restore(made, tmp_path / "restored")
        made = tmp_path / "restored"
    assert fmq.check(made).ok
    with fmq.open(made, background=False) as engine:
        assert engine.queues("t")[0].next == COUNT
