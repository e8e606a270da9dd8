"""The journal: segments that grow at their end, and the queue that shares their syncs."""
