"""Prints a failure step by step: what was done, promised, lost and recovered, and what broke."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterator
from pathlib import Path

from crash_tests.corpus import again
from crash_tests.engines import abandon, open_engine, options_of
from crash_tests.explore import Explorer, Moment
from crash_tests.failure import Event, Failure, load, tell
from crash_tests.look import look
from crash_tests.oracle import INVARIANTS, Oracle, Seen, Violation
from crash_tests.run import Run
from crash_tests.threads.story import text_of, threads_of, turns_of
from crash_tests.threads.tour import replayed
from crash_tests.trial import Trial
from fmq.arguments.options import Options
from fmq.errors import FmqError
from fmq.testing import CrashDisk, Loss

BODY_BYTES = 12  # how many bytes of each body are printed


def tell_again(file: Path) -> int:
    """Print the steps of the failure in `file`, and whether it fails in the same way today."""
    failure = load(file)
    print(f"{file}: {failure.violation}\n")
    for line in _story(failure):
        print(line)
    violation = again(failure)
    if violation is None:
        print("\nDoes not fail any more.")
        return 0
    print(f"\nBroken: {violation}")
    print(f"  {violation.invariant} says: {INVARIANTS.get(violation.invariant, 'see README')}")
    if violation.__cause__ is not None:
        traceback.print_exception(violation.__cause__, limit=-6)
    return 1


def _story(failure: Failure) -> Iterator[str]:
    if failure.order is not None:
        yield "Steps"
        for i, step in enumerate(failure.workload.steps):
            yield f"  {i:3}  {text_of(step)}"
        yield f"\nOn a disk on which {failure.order}"
        return
    explorer = Explorer(failure.workload)
    at: Run | Moment
    if failure.schedule is not None:
        play, _ = replayed(failure)
        yield from threads_of(failure.workload)
        yield from turns_of(play, failure.crash_at)
        at = play.moments[failure.crash_at] if failure.crash_at >= 0 else play.now()
    else:
        at = explorer.start(None if failure.crash_at < 0 else failure.crash_at)
        yield from _steps(at)
    yield from _promises(at.oracle)
    if failure.crash_at >= 0:
        yield from _crash(at, failure.path[0])
        state = explorer.crashed(at, failure.path[0])
        yield from _recovery(state, options_of(failure.workload), at.oracle)
        yield from _what_followed(explorer.trial_of(at, failure.path[0]), failure.path[1:])


def _what_followed(trial: Trial, path: list[Event]) -> Iterator[str]:
    for event in path[:-1]:
        yield f"\nThen {tell(event)}"
        if event["do"] == "life":
            yield from (f"       {text_of(step)}" for step in trial.life_steps())
    with contextlib.suppress(Exception):  # the error is printed below
        trial.replay(path)
    if path and trial.cut is not None:
        yield from _cut(*trial.cut)
    elif path:
        yield f"\nThen {tell(path[-1])}"


def _steps(run: Run) -> Iterator[str]:
    """Print the steps, and the operations of the disk that each made."""
    ends: list[int] = []
    try:
        if run.go(lambda run: ends.append(run.operations)):
            run.close()
    except (Violation, FmqError, OSError) as error:
        yield f"  it goes wrong without any crash: {error}"
    yield "Steps, and the disk's operations"
    begin = None
    if run.at < 0:
        yield f"       the opening: the power fails {run.lost}"
    for i, step in enumerate(run.workload.steps):
        text = f"  {i:3}  {text_of(step):48} "
        if i < len(ends):
            yield text + (f"up to {ends[i] - 1}" if ends[i] != begin else "none")
            begin = ends[i]
        elif i == run.at:
            yield text + f"runs when the power fails {run.lost}"
        else:
            yield text + "never begun"
    if len(ends) == len(run.workload.steps) and run.lost:
        yield f"       the close: the power fails {run.lost}"


def _promises(oracle: Oracle) -> Iterator[str]:
    yield "\nPromised by then"
    for name, unit in oracle.units.items():
        fates = " or ".join(sorted(unit.fates))
        said = "acknowledged" if unit.returned else "not answered"
        yield f"  {name:16} {said}: {fates if len(unit.fates) == 1 else f'may be {fates}'}"
    if not oracle.units:
        yield "  nothing"


def _crash(at: Run | Moment, event: Event) -> Iterator[str]:
    """Print what the crash took, change by change."""
    if event["do"] == "power":
        yield from _cut(at.disk, Loss.from_json(event))
    else:
        yield f"\n{tell(event).capitalize()}"


def _cut(disk: CrashDisk, loss: Loss) -> Iterator[str]:
    yield "\nPower loss: of what was not synced"
    for change in disk.pending():
        number = change.number
        if loss.torn is not None and loss.torn.number == number:
            fate = f"torn at byte {loss.torn.cut} ({loss.torn.tear})"
        else:
            fate = "kept" if number in loss.kept else "lost"
        yield f"  {number:4}  {fate:24} {disk.name_of(number)}"


def _recovery(state: CrashDisk, options: Options, oracle: Oracle) -> Iterator[str]:
    """Print what opening the directory finds."""
    yield "\nRecovery"
    disk = state.after_kill()
    try:
        engine = open_engine(disk, options)
    except Exception as error:
        yield f"  does not open: {type(error).__name__}: {error}"
        return
    try:
        yield f"  {engine.stats().recovery}"
        yield from _shown(look(engine, oracle.tx_names(), oracle.acking()))
    except Exception as error:
        yield f"  and reading it: {type(error).__name__}: {error}"
    finally:
        disk.stop()
        abandon(engine)


def _shown(seen: Seen) -> Iterator[str]:
    for (topic, queue), (first, bodies) in sorted(seen.lanes.items()):
        texts = ", ".join(body[:BODY_BYTES].decode("ascii", "replace") for body in bodies)
        yield f"  {topic}/{queue} from {first} on: {texts or 'nothing'}"
    for name, outcome in seen.outcomes.items():
        yield f"  {name} is {outcome}"
    for group, places in seen.delivered.items():
        got = ", ".join(f"{topic}/{queue}@{at}" for topic, queue, at in sorted(places))
        yield f"  {group} gets {got or 'nothing'}"
