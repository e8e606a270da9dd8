"""A close that an interrupt has stopped goes on when it is called again."""

from __future__ import annotations

import shutil
from pathlib import Path

import fmq
from fmq import Options
from tests.interrupts import Interrupt, in_thread
from tests.small import bodies
from tests.store.lines import at_each_line


def test_a_close_that_was_interrupted_anywhere_can_be_repeated(tmp_path: Path) -> None:
    """Interrupt at any line. The second call releases everything, and no file of another owner."""
    directory = tmp_path / "d"
    for interrupt in at_each_line(Interrupt, every=5):
        engine = fmq.open(directory, Options(segment_bytes=4096))
        engine.send("t", b"1")
        try:
            interrupt.run(engine.close)
        except KeyboardInterrupt:
            with (tmp_path / "another file").open("w") as another:
                in_thread(engine.close, interrupt.met)
                another.write("is left alone")
        with fmq.open(directory, background=False) as engine:
            assert bodies(engine, "t") == [b"1"], interrupt.met
        shutil.rmtree(directory)
    assert interrupt.count > 50
