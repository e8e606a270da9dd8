"""The folders in which runs work: each run has one of its own."""

from pathlib import Path

from crash_tests.real.filesystem import scratch_below


def test_two_runs_at_once_have_folders_of_their_own(tmp_path: Path) -> None:
    """The later run removes nothing of the one that is at work."""
    with scratch_below(tmp_path, "kills") as first:
        (first / "store").mkdir()
        with scratch_below(tmp_path, "kills") as second:
            assert first != second
            assert (first / "store").is_dir()
        assert (first / "store").is_dir()
    assert list(tmp_path.iterdir()) == []


def test_files_of_a_killed_run_are_removed_by_the_next_run(tmp_path: Path) -> None:
    left = tmp_path / "fmq-kills-killed"
    (left / "store").mkdir(parents=True)
    with scratch_below(tmp_path, "kills") as scratch:
        assert list(tmp_path.iterdir()) == [scratch]
