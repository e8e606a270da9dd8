"""An export that is killed, and run again, gives the files that it would have given at once."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fmq.export import Progress, export
from tests.export import killing
from tests.export.reading import Out, expected

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def memory() -> Iterator[Path]:
    """A directory without a disk under it: what is killed are processes, not the power."""
    where = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory(dir=where) as path:
        yield Path(path)


def test_a_killed_and_repeated_export_gives_the_same_files(shop: str, memory: Path) -> None:
    """Names and bytes of the files are the same.

    Method: kill a child (SIGKILL) before its first operation on the file system, another before its
    second, and so on. Then run each export again to its end.
    """
    whole = Out(memory / "whole")
    export(shop, str(whole), engine="arrow", chunk_bytes=killing.CHUNK_BYTES)
    done = subprocess.run(
        [sys.executable, killing.__file__, shop, str(memory / "killed")],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    kills = int(done.stdout)
    assert kills > 40
    for number in range(1, kills + 1):
        out = Out(memory / "killed" / str(number))
        assert out.files() == whole.files(), f"killed at step {number}"
        assert sorted(os.listdir(out.path / "_fmq")) == ["export.json", "lock"], number


def test_an_export_stopped_within_a_chunk_shows_only_whole_ones(shop: str, tmp_path: Path) -> None:
    """The unfinished chunk is not among the files, and is made again."""
    whole, out = Out(tmp_path / "whole"), Out(tmp_path / "out")
    export(shop, str(whole), engine="arrow", chunk_bytes=killing.CHUNK_BYTES)

    def stop(progress: Progress) -> None:
        if progress.rows > 1500:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export(shop, str(out), engine="arrow", chunk_bytes=killing.CHUNK_BYTES, progress=stop)
    assert out.files()
    assert out.files().items() < whole.files().items()
    export(shop, str(out), engine="arrow", chunk_bytes=killing.CHUNK_BYTES)
    assert out.files() == whole.files()


def test_late_files_of_an_old_task_do_not_disturb_an_export(shop: str, out: Out) -> None:
    """The task may make files while staged files are removed, and after that.

    Method: whenever a directory of the export is about to be removed, make a late file in the
    staging directory.
    """
    late = out.path / "_fmq" / "staging" / "part=0.2026-01-31"
    made = 0

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal made
        if event == "os.rmdir" and made < 50:
            made += 1
            late.mkdir(parents=True, exist_ok=True)
            (late / f".{made}.parquet").touch()

    sys.addaudithook(hook)
    try:
        assert export(shop, str(out), engine="arrow", chunk_bytes=20_000).rows == 1900
        assert made > 4
    finally:
        made = 50
    assert out.rows() == expected(shop, "parquet")
