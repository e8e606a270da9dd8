"""Rows of jobs are written on a disk that crashes."""
