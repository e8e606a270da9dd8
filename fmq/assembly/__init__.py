"""The parts of an open engine: put together, run by threads, and ended."""
