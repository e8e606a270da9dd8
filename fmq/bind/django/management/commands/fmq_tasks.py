"""`manage.py fmq_tasks`: a worker for Django's tasks, of a backend of fmq.compat.django_tasks."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand


class Command(BaseCommand):
    """Runs tasks until SIGTERM."""

    help = "runs tasks of the backend fmq.compat.django_tasks, until SIGTERM"

    def add_arguments(self, parser: Any) -> None:
        """Take the backend and the number of threads."""
        parser.add_argument("--backend", default="default", help="its name in TASKS")
        parser.add_argument("--workers", type=int, default=1, help="how many threads run tasks")

    def handle(self, *, backend: str, workers: int, **_: Any) -> None:
        """Run the worker."""
        from django.tasks import task_backends  # Django 6

        task_backends[backend].work(workers=workers)
