"""Bytes and files: records, segments, the journal, indexes. This room knows the kinds of records,
but not what they mean.
"""
