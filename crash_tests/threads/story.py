"""Prints the steps of each thread, and the turns that the threads took."""

from __future__ import annotations

from collections.abc import Iterator

from crash_tests.threads.play import NAMES, Play
from crash_tests.workload import Step, Workload


def threads_of(workload: Workload) -> Iterator[str]:
    """Yield the steps of each thread."""
    yield "Steps"
    for step in workload.steps:
        yield f"  first         {text_of(step)}"
    for name, steps in zip(NAMES, workload.threads, strict=False):
        for step in steps:
            yield f"  {name}             {text_of(step)}"
    if workload.background:
        yield "  committer, housekeeping: the engine's own"


def text_of(step: Step) -> str:
    return " ".join(map(str, step))


def turns_of(play: Play, moment: int) -> Iterator[str]:
    """Yield which thread went on when, up to the moment; with -1 up to the end."""
    switches, operation = play.scheduler.switches, ""
    if moment >= 0:
        count, operation = play.places[moment]
        switches = switches[:count]
    yield "\nTurns"
    for switch in switches:
        if switch.stopped:
            how = "must wait" if switch.waits else "is stopped"
            yield f"  {switch.stopped} {how} at {switch.place}"
        yield f"      {switch.goes_on} goes on"
    if operation:
        yield f"  the crash comes before: {operation}"
