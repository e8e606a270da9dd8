"""Spark reads journals as tables; needs `pip install fmq-engine[spark]` and Java 17 or later."""

from fmq.spark.source import DataSource, register

__all__ = ["DataSource", "register"]
