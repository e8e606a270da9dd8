"""Two checkouts of fmq in turn: `python -m benchmarks.floor --beside OLD_CHECKOUT`.

Each round runs each checkout in a fresh process, in alternating order. The ratio of a row is the
median of the rounds' ratios, so a machine that is busy for a while slows both. Rows with "no sync"
are of `sync="never"`: there nothing hides what Python does.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import fmq

if TYPE_CHECKING:  # an old checkout has it elsewhere
    from fmq.arguments.options import SyncMode

HERE = Path(__file__).resolve().parent.parent
ROUNDS = 7
CALLS: dict[SyncMode, int] = {"always": 700, "never": 3000}
BODY = bytes(range(100))


def rows_of(engine: fmq.Engine) -> dict[str, Callable[[], object]]:
    """Return what is timed."""
    engine.send_many("c", [BODY] * 2 * max(CALLS.values()))
    consumer = engine.consumer("c", group="g")

    def transaction() -> None:
        with engine.transaction() as tx:
            tx.send("a", BODY)
            tx.send("b", BODY)

    def two_phases() -> None:
        tx = engine.transaction()
        tx.send("a", BODY)
        tx.send("b", BODY)
        tx.prepare()
        tx.commit()

    return {
        "send": lambda: engine.send("a", BODY),
        "transaction of two": transaction,
        "prepare and commit": two_phases,
        "poll and ack": lambda: consumer.poll(limit=1)[0].ack(),  # noqa: PLW0108,
    }


def median_us(call: Callable[[], object], calls: int) -> float:
    """Return what a call takes, in microseconds."""
    for _ in range(20):
        call()
    taken = []
    for _ in range(calls):
        started = time.perf_counter()
        call()
        taken.append(time.perf_counter() - started)
    return statistics.median(taken) * 1e6


def measure() -> None:
    """Print what each row takes with the fmq of the checkout in the arguments, as JSON."""
    assert Path(fmq.__file__).is_relative_to(sys.argv[1]), f"{fmq.__file__}: of another checkout"
    found = {}
    for mode, calls in CALLS.items():
        with (
            tempfile.TemporaryDirectory(dir=Path.cwd()) as folder,
            fmq.open(f"{folder}/d", fmq.Options(sync=mode)) as engine,
        ):
            for name, call in rows_of(engine).items():
                row = name if mode == "always" else f"{name}, no sync"
                found[row] = median_us(call, calls)
    print(json.dumps(found))


def one_round(checkout: Path) -> dict[str, float]:
    """Return the rows of `checkout`, measured in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": f"{checkout}{os.pathsep}{HERE}"}
    # Without -P the folder that this runs in would come before PYTHONPATH.
    command = [sys.executable, "-P", "-c", MEASURE, str(checkout)]
    done = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, text=True, check=True, timeout=300
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


# The benchmarks of this checkout, whatever the other one has.
MEASURE = f"""
import importlib.util
spec = importlib.util.spec_from_file_location("beside", {str(Path(__file__).resolve())!r})
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
module.measure()
"""


def compare(old: Path) -> None:
    """Print what this checkout takes, beside `old`."""
    sides = {"old": old, "new": HERE}
    rounds: list[dict[str, dict[str, float]]] = []
    for number in range(ROUNDS):
        order = list(sides) if number % 2 else [*sides][::-1]
        rounds.append({side: one_round(sides[side]) for side in order})
    for row in rounds[0]["new"]:
        ratios = sorted(each["new"][row] / each["old"][row] for each in rounds)
        us = {side: statistics.median(each[side][row] for each in rounds) for side in sides}
        print(
            f"{row:30} old {us['old']:6.1f} us, new {us['new']:6.1f} us, "
            f"ratio {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        )
