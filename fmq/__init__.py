"""fmq: an embedded transaction engine for messages."""
