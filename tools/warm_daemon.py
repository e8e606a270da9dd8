"""Spark's daemon of Python workers, which has imported what they need before it forks them."""

import pyspark.worker
from pyspark.daemon import manager

import fmq
import fmq.spark

__all__ = ["fmq", "pyspark"]

if __name__ == "__main__":
    manager()
