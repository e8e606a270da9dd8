"""A backend for Django's tasks, which Django 6 has, on the topics of an engine.

    TASKS = {"default": {"BACKEND": "fmq.compat.django_tasks.FmqTaskBackend"}}
    FMQ_DIR = "/var/lib/shop/queue"

A task that is enqueued inside of a block belongs to its transaction. `manage.py fmq_tasks` runs a
worker, and each failed task is tried again, until it is a dead letter.
"""

from __future__ import annotations

import json
from datetime import datetime
from math import inf
from typing import Any

import fmq

try:
    from django.conf import settings
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus
    from django.tasks.signals import task_enqueued, task_finished, task_started
    from django.utils import timezone
    from django.utils.crypto import get_random_string
    from django.utils.module_loading import import_string
except ImportError as error:
    raise ImportError(
        "fmq.compat.django_tasks needs Django 6 or later, and so Python 3.12: pip install "
        "'django>=6'. Nothing was changed."
    ) from error

GROUP = "django-tasks"
PRIORITIES = 9  # the largest of fmq's


class FmqTaskBackend(BaseTaskBackend):
    """Sends tasks to a topic for each queue, and runs them as members of the group django-tasks.

    OPTIONS may have ENGINE, a name of an engine such as "shop.queue.engine", instead of FMQ_DIR in
    the settings; TOPIC, with which the names of the topics begin; ATTEMPTS and BACKOFF, how often
    a task is tried and after how many seconds first; LEASE_SECONDS.
    """

    supports_defer = True
    supports_async_task = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        self._engine: fmq.Engine | fmq.RemoteEngine | None = None
        self._topic = self.options.get("TOPIC", "tasks")
        self.worker_id = get_random_string(32)

    @property
    def engine(self) -> fmq.Engine | fmq.RemoteEngine:
        """The engine, to which the first call connects."""
        if self._engine is None:
            name = self.options.get("ENGINE")
            self._engine = import_string(name) if name else fmq.connect(settings.FMQ_DIR, lazy=True)
        return self._engine

    def topic_of(self, queue: str) -> str:
        """Return the topic of a queue of Django's."""
        return f"{self._topic}-{queue}"

    def enqueue(self, task: Task, args: Any, kwargs: Any) -> TaskResult:
        """Send a task: in the transaction whose block is running, or at once if there is none."""
        self.validate_task(task)
        result = self._result(task, get_random_string(32), args, kwargs)
        body = {"task": task.module_path, "args": result.args, "kwargs": result.kwargs}
        body |= {"id": result.id, "enqueued_at": timezone.now().isoformat()}
        how: dict[str, Any] = {"headers": {"task": task.module_path, "id": result.id}}
        how["priority"] = round((task.priority + 100) * PRIORITIES / 200)
        if task.run_after is not None:
            how["deliver_at"] = _aware(task.run_after)
        sender = fmq.current_transaction(self.engine) or self.engine
        sender.send(self.topic_of(task.queue_name), json.dumps(body).encode(), **how)
        object.__setattr__(result, "enqueued_at", timezone.now())
        task_enqueued.send(type(self), task_result=result)
        return result

    def work(self, *, workers: int = 1, tasks_max: float = inf) -> None:
        """Run tasks in `workers` threads, until SIGTERM or after `tasks_max` tasks."""
        done = 0
        retry = fmq.Retry(self.options.get("ATTEMPTS", 5), backoff=self.options.get("BACKOFF", 10))
        topics = [self.topic_of(queue) for queue in sorted(self.queues)]
        lease = self.options.get("LEASE_SECONDS", 600.0)
        member = {"group": GROUP, "retry": retry, "lease_seconds": lease}
        with self.engine.consumer(topics, **member) as consumer:

            def handle(delivery: fmq.Delivery) -> None:
                nonlocal done
                done += 1
                if done >= tasks_max:
                    consumer.drain(timeout=0.0)
                self._run(delivery)

            consumer.run(handle, workers=workers)

    def _run(self, delivery: fmq.Delivery) -> None:
        """Run one task. What it raises is raised, so that it is tried again."""
        said = json.loads(delivery.body)
        task = import_string(said["task"])
        result = self._result(task, said["id"], said["args"], said["kwargs"])
        now = timezone.now()
        found = {"enqueued_at": datetime.fromisoformat(said["enqueued_at"])}
        found |= {"status": TaskResultStatus.RUNNING, "started_at": now, "last_attempted_at": now}
        _set(result, **found)
        result.worker_ids.extend([self.worker_id] * delivery.attempt)
        task_started.send(type(self), task_result=result)
        context = [TaskContext(task_result=result)] if task.takes_context else []
        try:
            value = task.call(*context, *result.args, **result.kwargs)
        except Exception as error:
            kind = type(error)
            path = f"{kind.__module__}.{kind.__qualname__}"
            result.errors.append(TaskError(exception_class_path=path, traceback=repr(error)))
            _set(result, status=TaskResultStatus.FAILED, finished_at=timezone.now())
            task_finished.send(type(self), task_result=result)
            raise
        done = {"status": TaskResultStatus.SUCCESSFUL, "_return_value": value}
        _set(result, finished_at=timezone.now(), **done)
        task_finished.send(type(self), task_result=result)

    def _result(self, task: Task, name: str, args: Any, kwargs: Any) -> TaskResult:
        """Return the result of a task that has not run."""
        times = dict.fromkeys(("enqueued_at", "started_at", "finished_at", "last_attempted_at"))
        said = {"task": task, "id": name, "args": list(args), "kwargs": kwargs}
        lists: dict[str, list[Any]] = {"errors": [], "worker_ids": []}
        return TaskResult(
            status=TaskResultStatus.READY, backend=self.alias, **said, **times, **lists
        )


def _set(result: TaskResult, **values: Any) -> None:
    """Set fields of a result, which is frozen for others."""
    for name, value in values.items():
        object.__setattr__(result, name, value)


def _aware(time: Any) -> Any:
    """Return a time with its zone: with USE_TZ=False it has none."""
    return time if timezone.is_aware(time) else timezone.make_aware(time)
