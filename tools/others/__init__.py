"""Tests that others have written for their queues, run on ours. `tools/others_tests.py` runs them.

Each module derives classes from those tests, or puts our parts in the place of theirs. The tests
themselves are not here: they come from source distributions, or from the Python that is installed.
"""
