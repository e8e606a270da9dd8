"""Spark reads journals as tables. This needs the extra `spark`, and a Java such as that of the
extra `java`.
"""

from importlib.util import find_spec

try:
    import pyarrow  # noqa: F401
    import pyspark  # noqa: F401

    # Not imported: no process that reads or writes needs it, and it takes half of what they import.
    if find_spec("pandas") is None:
        raise ImportError("No module named 'pandas'", name="pandas")
except ImportError as error:
    raise ImportError(
        f"{error.name} is not installed, and reading with Spark needs it: "
        "pip install 'fmq-engine[spark]'. fmq.table, and `fmq export` in the formats parquet, csv "
        "and json, need no Spark.",
        name=error.name,
    ) from error

from fmq.spark.java import NoJava, require_java
from fmq.spark.session import session
from fmq.spark.source import DataSource, register

__all__ = ["DataSource", "NoJava", "register", "require_java", "session"]
