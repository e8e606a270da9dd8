"""The eight crashes of a two-phase transaction, each by its name.

The power fails at the synced write of one append: before it is durable, so that nothing of it is
left but what was torn, or after it.
"""

import pytest

from crash_tests.engines import abandon, last_write, open_engine, options_of
from crash_tests.explore import Explorer
from crash_tests.run import Run
from crash_tests.workload import Step, Workload
from fmq.engines.engine import Engine
from fmq.errors import UnknownTransaction
from fmq.testing import CrashDisk, Loss, Tear, Torn

PREPARE: Step = ["prepare", "t", [["a", 0, 2, 40], ["b", 1, 1, 40]], None]
OPTIONS = {"checkpoint_bytes": 100_000}


def crashed(steps: list[Step], *, before_last: bool, **options: int) -> Run:
    """Return a run whose power failed at the last append of `steps`: before it was synced,
    or after.
    """
    explorer = Explorer(Workload("eight", steps, OPTIONS | options))
    run = explorer.start()
    assert run.go()
    history = run.disk.history
    abandon(run.engine)
    last = max(i for i, line in enumerate(history) if line.startswith("write") and ".seg" in line)
    run = explorer.start(last if before_last else last + 1)
    run.go()
    abandon(run.engine)
    return run


def reopened(run: Run, disk: CrashDisk) -> Engine:
    return open_engine(disk, options_of(run.workload))


def torn(run: Run, cut: int) -> CrashDisk:
    number = last_write(run.disk).number
    return run.disk.after(Loss(frozenset(), Torn(number, cut, Tear.SHORT)))


def nothing_happened(engine: Engine) -> bool:
    with pytest.raises(UnknownTransaction):
        engine.outcome("t")
    return not engine.undecided() and not engine.read("a") and not engine.read("b", queue=1)


def asked(engine: Engine) -> bool:
    shown = engine.read("a") + engine.read("b", queue=1)
    return [tx.tx_id for tx in engine.undecided()] == ["t"] and not shown


def test_1_before_prepare_is_durable_nothing_happened() -> None:
    run = crashed([PREPARE], before_last=True)
    with reopened(run, run.disk.after(Loss())) as engine:
        assert nothing_happened(engine)


def test_2_after_prepare_before_its_messages_nothing_happened() -> None:
    """They are one append, which is cut as a whole."""
    run = crashed([PREPARE], before_last=True)
    with reopened(run, torn(run, prepare_bytes(run))) as engine:
        assert nothing_happened(engine)


def test_3_inside_the_messages_nothing_happened() -> None:
    run = crashed([PREPARE], before_last=True)
    size = len(last_write(run.disk).data)
    for cut in range(prepare_bytes(run) + 8, size, 8):
        with reopened(run, torn(run, cut)) as engine:
            assert nothing_happened(engine), cut


def test_4_after_the_messages_before_the_commit_it_is_undecided_and_asked_about() -> None:
    run = crashed([PREPARE], before_last=False)
    with reopened(run, run.disk.after(Loss())) as engine:
        assert asked(engine)


@pytest.mark.parametrize("reference_bytes_min", [1, 10_000])
def test_5_inside_the_commit_it_is_asked_about_and_nothing_is_visible(
    reference_bytes_min: int,
) -> None:
    """Test it for a commit that refers to the bodies, and for one that copies them."""
    steps = [PREPARE, ["commit", "t"]]
    run = crashed(steps, before_last=True, reference_bytes_min=reference_bytes_min)
    size = len(last_write(run.disk).data)
    for cut in range(0, size, 8):
        with reopened(run, torn(run, cut)) as engine:
            assert asked(engine), cut


def test_6_after_the_commit_it_is_committed_and_never_asked_about() -> None:
    run = crashed([PREPARE, ["commit", "t"]], before_last=False)
    with reopened(run, run.disk.after(Loss())) as engine:
        assert engine.outcome("t").state == "committed"
        assert not engine.undecided()
        assert len(engine.read("a")) == 2
        assert len(engine.read("b", queue=1)) == 1


def test_7_before_the_rollback_is_durable_it_is_asked_about() -> None:
    run = crashed([PREPARE, ["rollback", "t"]], before_last=True)
    with reopened(run, run.disk.after(Loss())) as engine:
        assert asked(engine)


def test_8_after_the_rollback_it_is_rolled_back_and_never_asked_about() -> None:
    run = crashed([PREPARE, ["rollback", "t"]], before_last=False)
    with reopened(run, run.disk.after(Loss())) as engine:
        assert engine.outcome("t").state == "rolled back"
        assert not engine.undecided()
        assert not engine.read("a")


def prepare_bytes(run: Run) -> int:
    """Return where the first PRE_MESSAGE begins in the append: at the second record that
    has a body.
    """
    data = last_write(run.disk).data
    magic = data[:4]
    starts = [at for at in range(0, len(data), 8) if data[at : at + 4] == magic]
    return starts[-2]  # two PRE_MESSAGEs, a lane each, come last
