"""The bounds of what options may say, for those who meet such a number elsewhere."""

from __future__ import annotations

SEGMENT_BYTES_MIN = 2 * 1024  # what a decision may take fits it, and a message beside it
SEGMENT_BYTES_MAX = 1024 << 20
QUEUES_MAX = 4096
SECONDS_MAX = 100 * 365 * 86400  # a wait of three times as long is more than Python's locks take
