"""Who may read a directory: `Options(file_mode=)` decides, whatever the umask is."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

import fmq
from fmq.posix.denied import denied

SMALL = fmq.Options(segment_bytes=4096)
GROUP = 64_001


def fill(path: Path, options: fmq.Options) -> None:
    """Several segments, their indexes, a spare and both checkpoints."""
    with fmq.open(path, options, background=False) as engine:
        for _ in range(20):
            engine.send("t", b"x" * 500)
        engine.checkpoint()


def modes(path: Path) -> dict[str, int]:
    """Return the modes of all files below `path`, and of the folders among them."""
    return {str(each.relative_to(path)): stat.S_IMODE(each.stat().st_mode) for each in
            path.rglob("*")}  # fmt: skip


def torn(path: Path, to: Path) -> None:
    """A copy of a directory whose engine was killed in the middle of an append."""
    with fmq.open(path, SMALL, background=False) as engine:
        last = engine.send("t", b"x" * 500)
        shutil.copytree(path, to)
    segment = max(to.glob("*.seg"))
    data = bytearray(segment.read_bytes())
    base = int(segment.stem)
    data[last.position - base + 100 :] = bytes(len(data) - (last.position - base + 100))
    segment.write_bytes(data)


@pytest.mark.parametrize("umask", [0o000, 0o077], ids=oct)
@pytest.mark.parametrize(("mode", "entered"), [(0o640, 0o750), (0o644, 0o755), (0o660, 0o770)])
def test_every_file_of_an_engine_has_the_mode_of_the_options(
    tmp_path: Path, mode: int, entered: int, umask: int
) -> None:
    """Test segments, indexes, spares, checkpoints, LOCK and the copies in quarantine."""
    path, killed = tmp_path / "d", tmp_path / "killed"
    options = replace(SMALL, file_mode=mode)
    before = os.umask(umask)
    try:
        fill(path, options)
        torn(path, killed)
        known = set(modes(killed))
        fill(killed, options)
    finally:
        os.umask(before)
    made = {name: each for name, each in modes(killed).items() if name not in known}
    assert stat.S_IMODE(path.stat().st_mode) == entered
    assert made.pop("quarantine") == entered
    assert any(name.startswith("quarantine/") for name in made)
    assert {Path(name).suffix for name in made} >= {".seg", ".idx", ".cut"}
    assert set(made.values()) == {mode}, made


@pytest.mark.parametrize("umask", [0o000, 0o077], ids=oct)
def test_a_new_directory_and_its_files_have_the_mode(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        fill(tmp_path / "d", replace(SMALL, file_mode=0o640))
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "d").stat().st_mode) == 0o750
    found = modes(tmp_path / "d")
    assert {Path(name).suffix for name in found} >= {".seg", ".idx", ".spare", ".0", ".1", ""}
    assert set(found.values()) == {0o640}, found


def test_a_spare_made_earlier_becomes_a_segment_of_the_new_mode(tmp_path: Path) -> None:
    """LOCK gets the new mode too. Earlier segments keep theirs."""
    with fmq.open(tmp_path / "d", SMALL, background=False) as engine:
        engine.send("t", b"x")
    [first] = [name for name in modes(tmp_path / "d") if name.endswith(".seg")]
    fill(tmp_path / "d", replace(SMALL, file_mode=0o640))
    found = modes(tmp_path / "d")
    segments = {name: mode for name, mode in found.items() if name.endswith(".seg")}
    assert segments.pop(first) == 0o600
    assert set(segments.values()) == {found["LOCK"]} == {0o640}


READS = """
import os, sys, tempfile
path, group = sys.argv[1], int(sys.argv[2])
import fmq, fmq.table

def looked():
    try:
        with fmq.open(path, read_only=True) as reader:
            said = str(sum(each.next for each in reader.queues()))
        with fmq.table.pinned(path):
            assert fmq.table.read(path).read_all().num_rows == int(said)
        try:
            return said + (" checked" if fmq.check(path).ok else " not sound")
        except fmq.errors.Locked:
            return said
    except fmq.FmqError as error:
        return type(error).__name__

with tempfile.TemporaryDirectory() as own:
    fmq.open(own + "/d").close()
looked()  # like this, imports what is needed, while this process may read where Python is
os.setgroups([group]); os.setgid(group); os.setuid(64_000)
said = looked()
try:
    fmq.open(path)
    said += " and written"
except fmq.FmqError:
    pass
print(said)
"""


def as_other(path: Path, group: int) -> str:
    """Return what another user, of `group`, finds in the directory."""
    done = subprocess.run(
        [sys.executable, "-c", READS, str(path), str(group)],
        cwd=Path(fmq.__file__).parent.parent, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.stdout.strip() or done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
@pytest.mark.parametrize(("mode", "says"), [(0o640, "20"), (0o600, "Unreadable")])
def test_a_user_of_the_group_can_read_and_not_write(mode: int, says: str) -> None:
    """Test a read-only engine, a table, a pin and a check, beside the engine and after it is
    closed.

    A user who is not of the group reads nothing.
    """
    path = Path(tempfile.mkdtemp(prefix="fmq-group-"))
    try:
        os.chown(path, 0, GROUP)
        path.chmod(0o2750)  # what is made inside is the group's, too
        with fmq.open(path, replace(SMALL, file_mode=mode), background=False) as engine:
            for _ in range(20):
                engine.send("t", b"x" * 500)
            engine.checkpoint()
            assert as_other(path, GROUP) == says
            assert as_other(path, GROUP + 1) == "Unreadable"
        assert as_other(path, GROUP) == says + (" checked" if says == "20" else "")
        assert as_other(path, GROUP + 1) == "Unreadable"
    finally:
        shutil.rmtree(path)


CALLS = """
import os, sys, tempfile
path, home = sys.argv[1:]
import fmq
homes = [home]
from fmq.basics.clock import SystemClock
from fmq.engines.standby import Standby

def standby(path):
    Standby(homes.pop(), path, None, SystemClock(), after=1, serves_at="tcp://127.0.0.1:1")

def connect(path):
    fmq.connect(path, retry_for=0)

def tried(path):
    for call in fmq.open, connect, fmq.check, standby, fmq.stop:
        try:
            call(path)
        except fmq.FmqError as error:
            yield str(error)

with tempfile.TemporaryDirectory() as own:
    fmq.open(own + "/d").close()
    homes.append(f"file://{own}/home")
    [*tried(own + "/none/d")]  # imports what is needed, while this process may read where Python is
os.setgroups([]); os.setgid(64_000); os.setuid(64_000)
print(*tried(path), sep="\\n")
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_who_may_not_enter_a_directory_is_told_whose_it_is() -> None:
    """Whichever call is made, and what to do."""
    path = Path(tempfile.mkdtemp(prefix="fmq-other-"))
    try:
        path.chmod(0o755)
        fmq.open(path / "d").close()
        (path / "home").mkdir()
        (path / "home").chmod(0o777)
        done = subprocess.run(
            [sys.executable, "-c", CALLS, str(path / "d"), f"file://{path}/home"],
            cwd=Path(fmq.__file__).parent.parent, capture_output=True, text=True, check=False,
        )  # fmt: skip
        said = done.stdout.splitlines()
        assert len(said) == 5, said or done.stderr
        for each in said:
            assert f"Permission denied, as {path}/d belongs to root, with mode 700" in each
            assert "this process to the user 64000" in each
            assert "Nothing was changed" in each and "over TCP, with a token" in each
    finally:
        shutil.rmtree(path)


OPENED_BEFORE = """
import os, pwd, sys
from fmq.posix import RealDisk
os.chdir(sys.argv[1])
os.mkdir("late")
directory = RealDisk().directory("late", make=False)
os.chdir("/")
os.chmod(sys.argv[1] + "/late", 0)
os.setgroups([]); os.setgid(64_000); os.setuid(64_000)
for call in directory.create, lambda name: directory.subdirectory(name, make=False):
    try:
        call("new")
    except PermissionError as error:
        print(error)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_the_directory_that_refuses_is_the_one_that_is_named() -> None:
    """Behind a symlink, and after the process has changed its working directory."""
    path = Path(tempfile.mkdtemp(prefix="fmq-other-"))
    root = Path(fmq.__file__).parent.parent

    def said(program: str, *more: str) -> list[str]:
        line = [sys.executable, "-c", program, *more]
        done = subprocess.run(line, cwd=root, capture_output=True, text=True, check=False)
        return done.stdout.splitlines() or [done.stderr]

    try:
        path.chmod(0o755)
        for name in "mine", "secret", "home":
            (path / name).mkdir()
        os.chown(path / "mine", 64_000, 64_000)
        (path / "home").chmod(0o777)
        fmq.open(path / "secret" / "shop").close()
        (path / "secret").chmod(0o700)
        (path / "mine" / "shop").symlink_to(path / "secret" / "shop")
        found = said(CALLS, str(path / "mine" / "shop"), f"file://{path}/home")
        assert len(found) == 5, found
        for each in found:
            assert f"Permission denied, as {path}/secret belongs to root, with mode 700" in each
        found = said(OPENED_BEFORE, str(path))
        assert len(found) == 2, found
        for each in found:
            assert "Permission denied, as late belongs to root, with mode 0, and this" in each
    finally:
        shutil.rmtree(path)


def test_a_refusal_for_another_reason_names_no_owner(tmp_path: Path) -> None:
    """The system also refuses what the owner has asked it to protect, such as by chattr +i."""
    for number, names in (errno.EACCES, True), (errno.EPERM, False):
        error = PermissionError(number, os.strerror(number), str(tmp_path))
        assert ("belongs to" in str(denied(error, str(tmp_path)))) is names
