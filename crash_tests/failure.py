"""A broken promise, and a file that shows it again without any seed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crash_tests.oracle import Violation
from crash_tests.orders import Order
from crash_tests.threads.schedule import Schedule
from crash_tests.workload import Workload
from fmq.testing import Loss

Event = dict[str, Any]


def power(loss: Loss) -> Event:
    return {"do": "power", **loss.as_json()}


@dataclass(slots=True)
class Failure:
    """The place of a failure: the crash, and what followed it up to the recovery that showed the
    failure.
    """

    workload: Workload
    crash_at: int  # -1: without any crash
    path: list[Event]
    violation: Violation
    order: Order | None = None  # what was made to fail, instead of a crash
    # The schedule of threads; with it, `crash_at` is the number of a moment.
    schedule: Schedule | None = None
    planted: str = ""  # the planted bug with which it fails again, once it is mended

    def __str__(self) -> str:
        story = " · ".join(map(tell, self.path)) or "nothing"
        if self.order is not None:
            story = str(self.order)
        steps, at = f"{len(self.workload.steps)} steps", f"operation {self.crash_at}"
        if self.schedule is not None:
            threads = self.workload.threads
            steps += f", then {sum(map(len, threads))} in {len(threads)} threads"
            steps += f", {self.schedule}"
            at = f"moment {self.crash_at}"
        return (
            f"{self.violation}\n"
            f"  workload: {self.workload.name}, {steps}\n"
            f"  crash at: {'none' if self.crash_at < 0 else at}\n"
            f"  then:     {story}"
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "invariant": self.violation.invariant,
            "what": self.violation.what,
            "workload": self.workload.as_json(),
            "crash_at": self.crash_at,
            "path": self.path,
            "order": None if self.order is None else self.order.as_json(),
            "schedule": None if self.schedule is None else self.schedule.as_json(),
            "planted": self.planted,
        }

    def save(self, path: Path) -> None:
        path.write_text(_lines(self.as_json()) + "\n")


def _lines(data: Any, indent: str = "\n ") -> str:
    """Return JSON for people: a line for each value of an object, and for each step."""
    if isinstance(data, dict):
        inner = (f"{json.dumps(key)}: {_lines(each, indent + ' ')}" for key, each in data.items())
        return "{" + indent + f",{indent}".join(inner) + indent[:-1] + "}" if data else "{}"
    if isinstance(data, list) and any(isinstance(each, list) for each in data):
        return "[" + indent + f",{indent}".join(map(json.dumps, data)) + indent[:-1] + "]"
    return json.dumps(data)


def load(path: Path) -> Failure:
    data = json.loads(path.read_text())
    return Failure(
        Workload(**data["workload"]),
        data["crash_at"],
        data["path"],
        Violation(data["invariant"], data["what"]),
        Order.from_json(data["order"]) if data.get("order") else None,
        Schedule.from_json(data["schedule"]) if data.get("schedule") else None,
        data.get("planted", ""),
    )


def tell(event: Event) -> str:
    """Return one event in words."""
    match event["do"]:
        case "power":
            text = f"power loss that leaves {event['kept'] or 'nothing'} of what was not synced"
            if event["torn"]:
                number, cut, tear = event["torn"]
                text += f", {number} torn at byte {cut} ({tear})"
            return text
        case "kill":
            return "kill" + ("" if event["written"] else " before the last write can be seen")
        case "recover":
            at = event["crash_at"]
            return "recovery" + ("" if at is None else f" that crashes at its operation {at}")
        case "life":
            return "recovery, and life goes on"
        case "first send":
            return "recovery, and one message is sent"
    return str(event["do"])
