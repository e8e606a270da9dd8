"""Attempts of groups on a disk that crashes."""
