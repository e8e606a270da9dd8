"""A project with Django's tasks: a child of test_django_tasks.py."""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from typing import Any

import django
from django.conf import settings

settings.configure(
    TASKS={
        "default": {
            "BACKEND": "fmq.compat.django_tasks.FmqTaskBackend",
            "OPTIONS": {"ATTEMPTS": 2, "BACKOFF": 0.0},
        }
    },
    FMQ_DIR=f"{sys.argv[1]}/queue",
    USE_TZ=True,
)
django.setup()

from django.tasks import task, task_backends  # noqa: E402
from django.tasks.signals import task_finished  # noqa: E402
from django.utils import timezone  # noqa: E402

sys.modules["django_tasks_story"] = sys.modules["__main__"]
__name__ = "django_tasks_story"
ran: list[tuple[str, int]] = []
finished: list[str] = []


@task(takes_context=True)
def note(context: Any, word: str) -> str:
    ran.append((word, context.attempt))
    if word == "fails":
        raise ValueError(word)
    return word


@task
async def note_async(word: str) -> None:
    ran.append((word, 1))


def remember(task_result: Any, **_: Any) -> None:
    finished.append(str(task_result.status))


task_finished.connect(remember)
backend = task_backends["default"]
result = note.enqueue("lamp")
note.using(priority=100).enqueue("urgent")
note.enqueue("fails")
note_async.enqueue("async")
note.using(run_after=timezone.now() + timedelta(days=1)).enqueue("tomorrow")
before = backend.engine.queues("tasks-default")[0].next
try:
    with backend.engine.transaction():
        note.enqueue("never")
        raise ZeroDivisionError
except ZeroDivisionError:
    after = backend.engine.queues("tasks-default")[0].next
backend.work(tasks_max=5)
told = {
    "ran": ran,
    "rolled back": after - before,
    "status": str(result.status),
    "finished": sorted(finished, key=lambda each: each != "SUCCESSFUL"),
}
print(json.dumps(told))
