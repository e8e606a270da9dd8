"""The files of an object store, to be read as those of a directory."""

from fmq.buckets.bucket_address import described, in_bucket, is_pattern
from fmq.buckets.bucket_paths import directory_at, folders_like

__all__ = ["described", "directory_at", "folders_like", "in_bucket", "is_pattern"]
