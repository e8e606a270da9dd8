"""A local Spark session that knows fmq, with this Python."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from fmq.spark.java import require_java
from fmq.spark.source import register

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CONFIGURED = frozenset({"PYSPARK_GATEWAY_PORT", "SPARK_HOME", "SPARK_CONF_DIR", "MASTER"})
"""What says that somebody else knows where Spark runs."""

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def session(name: str = "fmq", master: str | None = None, **settings: str) -> SparkSession:
    """Return the running session, or a new one with `settings`. Raises NoJava.

    The dots in a setting's name are written as two underscores: `spark__ui__enabled="false"`.
    `master` is where it runs: `spark-submit` or a configuration of Spark's tells, and else it is
    this machine, with two tasks for each core.
    """
    from pyspark.sql import SparkSession

    if SparkSession.getActiveSession() is None:
        require_java()
        # Executors would not find a checkout that only this process has in its path.
        settings = {"spark__executorEnv__PYTHONPATH": ROOT} | settings
    # Workers would take the first python3 in PATH, which may not have fmq.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name)
    if master is None and CONFIGURED.isdisjoint(os.environ):
        # A task is two processes, Java and Python, and mostly one of them waits for the other.
        master = f"local[{2 * (os.cpu_count() or 1)}]"
    if master is not None:
        builder = builder.master(master)
    for setting, value in settings.items():
        builder = builder.config(setting.replace("__", "."), value)
    made: SparkSession = builder.getOrCreate()
    register(made)
    return made
