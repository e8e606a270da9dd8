"""The last append torn at one of a few bytes, in every way."""

from crash_tests.engines import last_write, options_of
from crash_tests.explore import Explorer
from crash_tests.suite import SEED, one_of
from crash_tests.trial import Trial
from crash_tests.workload import Workload
from fmq.testing import Loss, Tear, Torn

WORKLOAD = Workload(
    "tail",
    [
        ["send", "a", 0, 20],
        ["prepare", "t1", [["a", 0, 1, 20], ["b", 0, 1, 30]], None],
        ["tx", "t2", [["a", 0, 1, 20], ["b", 0, 1, 30]], None],
    ],
    {"checkpoint_bytes": 100_000},
)


def test_an_append_torn_at_any_byte_is_cut_whole() -> None:
    """No part of the last transaction is visible, whichever of its bytes are left."""
    explorer = Explorer(WORKLOAD)
    last = _last_append(explorer)
    run = explorer.start(last)
    run.go()
    change = last_write(run.disk)
    size = len(change.data)
    for cut in range(SEED % one_of(8), size + 1, one_of(8)):
        for tear in Tear:
            loss = Loss(frozenset(), Torn(change.number, cut, tear))
            state = run.disk.after(loss)
            Trial(options_of(WORKLOAD), state, run.oracle, [], seed=0).check()


def _last_append(explorer: Explorer) -> int:
    run = explorer.start()
    assert run.go()
    assert run.engine is not None
    history = run.disk.history
    run.engine.close()
    return max(i for i, line in enumerate(history) if line.startswith("write") and ".seg" in line)
