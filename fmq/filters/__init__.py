"""Filters: which messages of a topic a consumer group wants.

    tags("paid || refunded")             messages with one of these tags
    sql("amount > 100 and vip = TRUE")   messages whose headers fulfil a condition

Both follow RocketMQ; docs/filters.md has the grammar, the results and the differences. Filters
never change, can be hashed, and are equal if they say the same. They know nothing about engines.
"""

from fmq.filters.filter import Filter
from fmq.filters.sql_filter import SqlFilter, sql
from fmq.filters.stored_filter import stored
from fmq.filters.tag_filter import TagFilter, tags

__all__ = ["Filter", "SqlFilter", "TagFilter", "sql", "stored", "tags"]
