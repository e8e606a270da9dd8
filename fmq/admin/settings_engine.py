"""The engine of the settings: a client of the process that serves FMQ_DIR, or one that reads."""

from __future__ import annotations

import os

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

import fmq
from fmq.findings.visit import connected


def directory() -> str:
    """Return the directory that the settings name. Raises ImproperlyConfigured."""
    found = getattr(settings, "FMQ_DIR", None)
    if not found:
        raise ImproperlyConfigured(
            "the settings name no FMQ_DIR, the directory of messages that these pages are about."
        )
    path: str = os.fspath(found)
    return path


def reading() -> fmq.AnyEngine:
    """Return an engine to ask. It starts no process: if none serves, it reads the files."""
    try:
        return connected(directory())
    except fmq.errors.NotServed:
        return fmq.open(directory(), read_only=True)


def writing() -> fmq.RemoteEngine:
    """Return an engine for an act. A process that serves is started if there is none."""
    return fmq.connect(directory(), retry_for=5.0)
