"""The process that Spark forks for tasks: it has imported what each of them would import anew.

Spark's own one imports nothing before, as libraries may start threads. Those of a task here start
none while they are imported.
"""

from __future__ import annotations

import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

import fmq.spark  # noqa: F401

if __name__ == "__main__":
    manager()
