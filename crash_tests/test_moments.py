"""One run gives the same moments as one run for each of them."""

import pytest

from crash_tests.by_hand import WORKLOADS
from crash_tests.explore import Explorer


@pytest.mark.parametrize("name", ["kill", "relocation-of-acks"])
def test_a_moment_is_what_a_run_that_crashes_there_leaves(name: str) -> None:
    """The disk and the promises are the same. Otherwise no failure could be repeated."""
    explorer = Explorer(WORKLOADS[name])
    moments = list(explorer.moments())
    assert [number for number, _ in moments] == list(range(len(moments)))
    for number, moment in moments:
        run = explorer.start(number)
        explorer.go(run)
        assert run.disk.situation() == moment.disk.situation(), number
        assert run.oracle.promises() == moment.oracle.promises(), number
        for written in (True, False):
            seen, crashed = (disk.after_kill(written=written) for disk in (moment.disk, run.disk))
            assert seen.fingerprint() == crashed.fingerprint(), (number, written)
