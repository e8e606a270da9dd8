"""A journal as a page with pictures: `page_of(read(spark, "shop"))`; needs Spark."""

from fmq.report.numbers import Numbers, read
from fmq.report.page import page_of

__all__ = ["Numbers", "page_of", "read"]
