"""Bytes and files: records, segments, the journal, indexes. Knows kinds, not what they mean."""
