"""One process writes: locks, forks, permissions, and what a directory may and may not be."""

from __future__ import annotations

import fcntl
import gc
import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import fmq
from fmq import Options
from fmq.errors import Damaged, FmqError, Forked, Locked, NotAStore
from fmq.testing import CrashDisk
from tests import warm

SMALL = Options(segment_bytes=4096)


def run(script: str, *arguments: object) -> str:
    """Return what a new process prints that runs `script`."""
    environment = {**os.environ, "PYTHONPATH": str(Path(fmq.__file__).parent.parent)}
    done = warm.run(["-W", "error", "-c", script, *arguments], env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


# --- the lock -------------------------------------------------------------------------------------


def test_a_second_engine_in_this_process_is_locked_out(tmp_path: Path) -> None:
    with fmq.open(tmp_path / "d", SMALL):
        with pytest.raises(Locked, match=rf"by this process \(process {os.getpid()}\)") as caught:
            fmq.open(tmp_path / "d", SMALL)
        assert caught.value.holder == f"process {os.getpid()}"
    with fmq.open(tmp_path / "d", SMALL):
        pass


def test_the_error_beside_a_process_that_a_client_has_started_says_what_ends_it(
    tmp_path: Path,
) -> None:
    """It stays for a minute; with a timeout it gives way."""
    fmq.connect(tmp_path / "d").close()
    with pytest.raises(Locked, match="`fmq stop DIR` ends a process that only serves others"):
        fmq.open(tmp_path / "d")
    fmq.stop(tmp_path / "d")
    fmq.open(tmp_path / "d").close()


def test_an_engine_in_another_process_is_locked_out(tmp_path: Path) -> None:
    script = """
import sys, fmq
try:
    fmq.open(sys.argv[1])
except fmq.errors.Locked as error:
    assert "this process" not in str(error)
    print(error.holder)
"""
    with fmq.open(tmp_path / "d", SMALL) as engine:
        engine.send("t", b"0")
        assert run(script, tmp_path / "d") == f"process {os.getpid()}"
        engine.send("t", b"1")


def test_a_dead_process_leaves_no_lock(tmp_path: Path) -> None:
    """The kernel holds the lock. The process number in the file is only for people."""
    script = """
import os, sys, fmq
engine = fmq.open(sys.argv[1])
engine.send("t", b"0")
os.kill(os.getpid(), 9)
"""
    with pytest.raises(AssertionError):
        run(script, tmp_path / "d")
    with fmq.open(tmp_path / "d") as engine:
        assert [message.body for message in engine.read("t")] == [b"0"]


def test_a_second_engine_is_locked_out_on_a_disk_in_memory() -> None:
    disk = CrashDisk()
    with fmq.open("d", SMALL, disk=disk, background=False), pytest.raises(Locked):
        fmq.open("d", SMALL, disk=disk, background=False)


def test_a_second_engine_is_locked_out_even_if_the_lock_file_is_removed(tmp_path: Path) -> None:
    """People remove it when they read that the directory is open, and two writers would lose
    messages that both have acknowledged.
    """
    with fmq.open(tmp_path / "d", SMALL) as engine:
        engine.send("t", b"0")
        (tmp_path / "d" / "LOCK").unlink()
        for call in (fmq.open, fmq.open, fmq.check):
            with pytest.raises(Locked, match="whose LOCK has been removed"):
                call(tmp_path / "d")
        engine.send("t", b"1")
    with fmq.open(tmp_path / "d", SMALL) as engine:
        assert [message.body for message in engine.read("t")] == [b"0", b"1"]


LOOKED_AT = """
import fcntl, os, sys, fmq
engine = fmq.open(sys.argv[1])
engine.send("t", b"x")
engine.close()
looking = os.open(sys.argv[1] + sys.argv[2], os.O_RDONLY)
fcntl.flock(looking, fcntl.LOCK_SH)
asked = []
def let_go_at_the_second(event, arguments):
    if event == "fcntl.flock" and arguments[1] & fcntl.LOCK_EX:
        asked.append(arguments[0])
        if len(asked) == 2:
            os.close(looking)
sys.addaudithook(let_go_at_the_second)
with fmq.open(sys.argv[1]):
    print(len(asked) > 1)
"""


@pytest.mark.parametrize("looked_at", ["", "/LOCK"])
def test_an_engine_can_open_while_another_process_checks_for_one(
    tmp_path: Path, looked_at: str
) -> None:
    """`fmq.check` shares a lock to know whether an engine has it.

    Method: share it here too, and release it when the engine has been refused once.
    """
    assert run(LOOKED_AT, tmp_path / "d", looked_at) == "True"


def test_opening_does_not_wait_for_ever_for_another_programs_lock(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    other = os.open(tmp_path / "d", os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_SH)
    with pytest.raises(Locked):
        fmq.open(tmp_path / "d", SMALL)
    os.close(other)
    fmq.open(tmp_path / "d", SMALL).close()


WITHOUT_LOCKS_OF_DIRECTORIES = """
import errno, os, stat, sys, fmq
from fmq.errors import Locked
def refuse(event, arguments):
    if event == "fcntl.flock" and stat.S_ISDIR(os.fstat(arguments[0]).st_mode):
        raise OSError(errno.EBADF, "a directory")
sys.addaudithook(refuse)
with fmq.open(sys.argv[1]):
    for call in (fmq.open, fmq.check):
        try:
            call(sys.argv[1])
        except Locked as error:
            print(str(os.getpid()) in str(error))
fmq.open(sys.argv[1]).close()
"""


def test_only_the_lock_file_is_locked_if_a_directory_cannot_be(tmp_path: Path) -> None:
    """NFS is such a case: it locks only files that were opened for writing."""
    assert run(WITHOUT_LOCKS_OF_DIRECTORIES, tmp_path / "d").split() == ["True", "True"]


def test_an_open_that_failed_holds_no_lock(tmp_path: Path) -> None:
    with fmq.open(tmp_path / "d", SMALL) as engine:
        engine.send("t", b"0")
    segment = tmp_path / "d" / "00000000000000000000.seg"
    data = segment.read_bytes()
    segment.write_bytes(b"x" * 4096)
    for slot in (tmp_path / "d").glob("checkpoint.*"):
        slot.unlink()  # from which a header is written anew
    for _ in range(2):
        with pytest.raises(FmqError, match="not a segment"):
            fmq.open(tmp_path / "d", SMALL)
    segment.write_bytes(data)
    with fmq.open(tmp_path / "d", SMALL) as engine:
        assert engine.read("t")


# --- fork -----------------------------------------------------------------------------------------


FORK = """
import os, sys, threading, fmq
from fmq.errors import Forked
from fmq.testing.inside import locks_of

engine = fmq.open(sys.argv[1], fmq.Options(segment_bytes=4096))
engine.send("t", b"0")
tx = engine.transaction(tx_id="T"); tx.send("t", b"1"); tx.prepare()
begun = engine.transaction(); begun.send("t", b"2")
with engine.transaction(tx_id="long ago") as ended:
    ended.send("old", b"x" * 2000)
while engine.stats().segments < 2:
    engine.send("old", b"x" * 2000)
    engine.checkpoint()
empty = engine.transaction()
consumer = engine.consumer("t", group="g")
(delivery,) = consumer.poll()
engine.checker("p")(lambda question: "commit")
asked = engine.transaction(tx_id="asked", producer="q", check_after=0)
asked.send("u", b"3"); asked.prepare()
(question,) = engine.feedback.ask("q")
loop = fmq.CheckLoop(engine.feedback, {"q": lambda question: "commit"})
reader = fmq.open(sys.argv[1], read_only=True)
calls = {
    "send": lambda: engine.send("t", b"child"),
    "send_many": lambda: engine.send_many("t", [b"child"]),
    "read": lambda: engine.read("t"),
    "queues": lambda: engine.queues(),
    "groups": lambda: engine.groups(),
    "transaction": lambda: engine.transaction(),
    "named transaction": lambda: engine.transaction(tx_id="U"),
    "outcome": lambda: engine.outcome("T"),
    "outcome of a prepared one": lambda: tx.outcome(),
    "outcome of an ended one": lambda: ended.outcome(),
    "outcome of one begun": lambda: begun.outcome(),
    "undecided": lambda: engine.undecided(),
    "decide": lambda: engine.decide("T", "commit"),
    "ask": lambda: engine.feedback.ask("q"),
    "answer": lambda: engine.feedback.answer(question, "commit"),
    "answer that one cannot tell": lambda: engine.feedback.answer(question, "unknown"),
    "resume": lambda: engine.feedback.resume("asked"),
    "checker": lambda: engine.checker("r"),
    "settle": lambda: engine.settle(),
    "send in transaction": lambda: engine.send_in_transaction([("t", b"")], lambda tx: "commit"),
    "a round of the loop": lambda: loop.once(),
    "consumer": lambda: engine.consumer("t", group="g"),
    "poll": lambda: consumer.poll(),
    "ack": lambda: delivery.ack(),
    "release": lambda: delivery.release(),
    "sync": lambda: engine.sync(),
    "checkpoint": lambda: engine.checkpoint(),
    "stats": lambda: engine.stats(),
    "commit of a prepared one": lambda: tx.commit(),
    "roll back of a prepared one": lambda: tx.rollback(),
    "commit of one begun": lambda: begun.commit(),
    "prepare of one begun": lambda: begun.prepare(),
    "commit of an empty one": lambda: empty.commit(),
    "read of a reader": lambda: reader.read("t"),
    "queues of a reader": lambda: reader.queues(),
    "outcome of a reader": lambda: reader.outcome("T"),
    "refresh of a reader": lambda: reader.refresh(),
}
# Other threads hold the locks at the moment of the fork, for ever as the child sees it.
locks = locks_of(engine) + locks_of(reader)
if sys.argv[2] == "busy":
    for lock in locks:
        lock.acquire()
child = os.fork()
if child == 0:
    wrong = []
    for name, call in calls.items():
        try:
            call()
            wrong.append(name)
        except Forked:
            pass
        except BaseException as error:
            wrong.append(f"{name}: {error!r}")
    loop.run()  # returns: nobody asks here any more
    if threading.active_count() > 1:
        wrong.append(f"{threading.enumerate()}")
    engine.close()
    consumer.close()
    reader.close()
    print(wrong, flush=True)
    os._exit(bool(wrong))
if sys.argv[2] == "busy":
    for lock in locks:
        lock.release()
_, status = os.waitpid(child, 0)
begun.commit()
tx.commit()
delivery.ack()
engine.feedback.answer(question, "commit")
prepared = engine.transaction(tx_id="prepared", producer="p", check_after=0)
prepared.send("u", b"4"); prepared.prepare()
engine.settle()
assert engine.undecided() == []
reader.close()
print([message.body for message in engine.read("t")], os.waitstatus_to_exitcode(status))
consumer.close()
engine.close()
"""


@pytest.mark.parametrize("lock", ["free", "busy"])
def test_every_call_in_a_forked_child_is_refused(tmp_path: Path, lock: str) -> None:
    """It neither writes nor hangs, whatever other threads did at the fork. The parent goes on."""
    child, parent = run(FORK, tmp_path / "d", lock).splitlines()
    assert child == "[]"
    assert parent == "[b'0', b'2', b'1'] 0"
    assert fmq.check(tmp_path / "d").ok


FORK_AMONG_THREADS = """
import os, signal, sys, threading, fmq
from fmq.errors import Forked

engine = fmq.open(sys.argv[1], background=sys.argv[2] == "background")
engine.send_many("t", [b"0"] * 5)
consumer = engine.consumer("t", group="g")
tx = engine.transaction()
tx.ack(consumer.poll(limit=1)[0])
empty = engine.transaction()
calls = {
    "poll": consumer.poll,
    "roll back": tx.rollback,
    "roll back of nothing": empty.rollback,
    "close of the consumer": consumer.close,
    "close of the engine": engine.close,
}
stop = False

def work():
    while not stop:
        engine.groups()
        engine.read("t")
        if sys.argv[2] == "calls":
            engine.send("u", b"x" * 100)

threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads:
    thread.start()
hung = []
for _ in range(8):
    for name, call in calls.items():
        child = os.fork()
        if child == 0:
            signal.alarm(5)  # which ends it
            try:
                call()
            except Forked:
                pass
            os._exit(0)
        if os.waitpid(child, 0)[1]:
            hung.append(name)
    if hung:
        break
stop = True
for thread in threads:
    thread.join()
tx.rollback()
engine.close()
print(hung)
"""


@pytest.mark.parametrize("chores", ["background", "calls"])
def test_a_forked_child_waits_for_no_lock_of_another_thread(tmp_path: Path, chores: str) -> None:
    """Another thread of the parent may hold any lock at the fork, also that of a chore at the end
    of a call. Every call in the child returns or is refused.
    """
    assert run(FORK_AMONG_THREADS, tmp_path / "d", chores) == "[]"


def test_a_fork_does_not_keep_the_lock_of_its_parent(tmp_path: Path) -> None:
    """The parent closes, and another engine may open, though the child still lives."""
    script = """
import os, sys, fmq
engine = fmq.open(sys.argv[1])
hold, release = os.pipe()
child = os.fork()
if child == 0:
    os.close(release)
    os.read(hold, 1)
    os._exit(0)
engine.close()
with fmq.open(sys.argv[1]) as again:
    again.send("t", b"0")
os.close(release)
os.waitpid(child, 0)
print("ok")
"""
    assert run(script, tmp_path / "d") == "ok"


def test_a_child_process_neither_keeps_nor_frees_its_parents_lock(tmp_path: Path) -> None:
    """It has a copy of the lock from the fork on."""
    script = """
import os, sys
from fmq.errors import Locked
from fmq.posix import RealDisk
directory = RealDisk().directory(sys.argv[1], make=True)
release = directory.lock("LOCK")
hold, go = os.pipe()
child = os.fork()
if child == 0:
    os.close(go)
    os.read(hold, 1)
    os._exit(0)
release()
release = directory.lock("LOCK")
other = os.fork()
if other == 0:
    release()
    os._exit(0)
os.waitpid(other, 0)
try:
    directory.lock("LOCK")
except Locked:
    print("ok")
os.close(go)
os.waitpid(child, 0)
"""
    assert run(script, tmp_path / "d") == "ok"


def test_the_error_forked_says_what_to_do() -> None:
    assert "Open engines after forking" in str(Forked("d"))


# --- the directory --------------------------------------------------------------------------------


def test_directories_are_0700_and_files_0600_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with fmq.open(tmp_path / "d", SMALL, background=False) as engine:
            for _ in range(20):
                engine.send("t", b"x" * 500)
            engine.checkpoint()
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "d").iterdir()}
    assert stat.S_IMODE((tmp_path / "d").stat().st_mode) == 0o700
    assert set(modes.values()) == {0o600}, modes


@pytest.mark.parametrize(
    "name", ["notes.txt", "draft.new", "film.part", "my.spare", "notes.copy", "my.idx", "x.seg"]
)
def test_a_directory_with_other_files_is_refused_and_unchanged(tmp_path: Path, name: str) -> None:
    """Only names that fmq gives make it a directory of fmq, whatever other names end with."""
    (tmp_path / name).write_text("mine")
    for read_only in (False, True):
        with pytest.raises(NotAStore, match=re.escape(name)):
            fmq.open(tmp_path, read_only=read_only)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_an_empty_directory_can_be_opened(tmp_path: Path) -> None:
    with fmq.open(tmp_path, SMALL) as engine:
        assert engine.send("t", b"0").offset == 0


def test_a_file_is_refused_as_a_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NotAStore):
        fmq.open(tmp_path / "file")


def test_a_directory_is_made_and_its_parents_are_not(tmp_path: Path) -> None:
    with pytest.raises(NotAStore, match="parent"):
        fmq.open(tmp_path / "a" / "b")
    assert list(tmp_path.iterdir()) == []


def test_a_read_only_engine_makes_no_directory(tmp_path: Path) -> None:
    with pytest.raises(NotAStore):
        fmq.open(tmp_path / "d", read_only=True)
    assert list(tmp_path.iterdir()) == []


def test_a_path_may_be_a_str_or_path_like(tmp_path: Path) -> None:
    with fmq.open(tmp_path / "d", SMALL) as engine:
        engine.send("t", b"0")
        assert engine.path == str(tmp_path / "d")
    with fmq.open(str(tmp_path / "d"), SMALL) as engine:
        assert engine.read("t")
    assert fmq.check(tmp_path / "d").ok
    assert fmq.check(str(tmp_path / "d")).ok


def test_other_files_in_a_store_are_left_alone(tmp_path: Path) -> None:
    """Only names that fmq gives are removed, whatever other names end with."""
    with fmq.open(tmp_path / "d", SMALL) as engine:
        engine.send("t", b"0")
    names = ["notes.txt", "film.part", "notes.copy", "my.spare", "my.idx", "draft.new", "x.seg"]
    for name in names:
        (tmp_path / "d" / name).write_text("mine")
    for _ in range(2):
        with fmq.open(tmp_path / "d", SMALL, background=False) as engine:
            for _ in range(20):
                engine.send("t", b"x" * 500)
            engine.checkpoint()
    assert fmq.check(tmp_path / "d").ok
    for name in names:
        assert (tmp_path / "d" / name).read_text() == "mine"


def test_a_check_of_an_open_directory_is_refused(tmp_path: Path) -> None:
    with fmq.open(tmp_path / "d", SMALL), pytest.raises(Locked, match="by this process"):
        fmq.check(tmp_path / "d")


FORKED_WHILE_CLOSING = """
import os, sys, threading, fmq
from fmq.posix import RealDisk
from fmq.testing import FaultDisk
disk, inside, go = FaultDisk(RealDisk()), threading.Event(), threading.Event()
engine = fmq.open(sys.argv[1], disk=disk)
engine.send("t", b"x")
def wait():
    inside.set()
    go.wait()
disk.before("open", wait, names="*/checkpoint.?")
closing = threading.Thread(target=engine.close)
closing.start()
inside.wait()
child = os.fork()
if not child:
    held = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")
            if os.path.exists(f"/proc/self/fd/{fd}")]
    engine.close()
    os._exit(any(sys.argv[1] in path for path in held))
_, status = os.waitpid(child, 0)
go.set()
closing.join()
print(os.waitstatus_to_exitcode(status))
"""


def test_a_child_forked_during_a_close_holds_nothing_and_can_close(
    tmp_path: Path,
) -> None:
    assert run(FORKED_WHILE_CLOSING, tmp_path / "d") == "0"


# --- dropped without close ------------------------------------------------------------------------


def dropped(use: Callable[[], object]) -> None:
    use()
    gc.collect()


def test_an_engine_dropped_without_close_warns_and_frees_all(tmp_path: Path) -> None:
    """It releases the lock and its files. Threads of an engine would keep it alive."""
    for _ in range(3):
        with pytest.warns(ResourceWarning, match="not closed"):
            dropped(lambda: fmq.open(tmp_path / "d", background=False).send("t", b"1"))
    open_files = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with pytest.warns(ResourceWarning, match="not closed"):
            dropped(lambda: fmq.open(tmp_path / "d", read_only=True).read("t"))
    assert len(os.listdir("/proc/self/fd")) <= open_files


def test_locked_in_one_process_mentions_an_engine_dropped_unclosed(
    tmp_path: Path,
) -> None:
    with fmq.open(tmp_path / "d"), pytest.raises(Locked, match="dropped without close"):
        fmq.open(tmp_path / "d")


def test_a_directory_with_the_lock_file_of_another_program_is_not_a_store(tmp_path: Path) -> None:
    (tmp_path / "LOCK").write_text("mine")
    for read_only in (False, True):
        with pytest.raises(NotAStore, match="'LOCK'"):
            fmq.open(tmp_path, read_only=read_only)
    assert (tmp_path / "LOCK").read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["LOCK"]


@pytest.mark.parametrize("left", ["", "process 4711\nhost shop\n", "\0" * 30])
def test_a_directory_with_only_a_lock_file_left_by_a_kill_opens(tmp_path: Path, left: str) -> None:
    (tmp_path / "LOCK").write_text(left)
    with fmq.open(tmp_path, SMALL) as engine:
        assert engine.send("t", b"0").offset == 0


def test_a_directory_that_lost_its_only_segment_is_damaged(tmp_path: Path) -> None:
    """Any other file in it shows that there was a journal, and none of them is removed."""
    with fmq.open(tmp_path, SMALL, background=False) as engine:
        engine.send("t", b"acknowledged")
        files = {path.name for path in tmp_path.iterdir()}
    (tmp_path / ("0" * 20 + ".seg")).unlink()
    left = {path.name for path in tmp_path.iterdir()}
    for only in [*(left - {"LOCK"}), "000007.spare", "000007.spare.new", "FAILED", "quarantine"]:
        for name in left - {only, "LOCK"}:
            (tmp_path / name).unlink(missing_ok=True)
        (tmp_path / only).touch()
        for read_only in (False, True):
            with pytest.raises(Damaged, match="all segments are missing"):
                fmq.open(tmp_path, read_only=read_only)
        assert not fmq.check(tmp_path).ok
        assert {path.name for path in tmp_path.iterdir()} == {"LOCK", only}
        (tmp_path / only).unlink()
    assert "000000.spare" in files


OUT_OF_FILES = """
import os, resource, sys
import fmq

engine = fmq.open(sys.argv[1])
consumer = engine.consumer("t", group="g")
taken = [os.open("/dev/null", os.O_RDONLY)]
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
while True:
    try:
        taken.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        break
engine.send("t", b"2")
engine.decide("T", "rollback")
refused = []
for call in (
    lambda: engine.outcome("T"),
    lambda: engine.undecided(),
    lambda: engine.queues(),
    lambda: consumer.poll()[0].ack(),
    lambda: engine.stats(),
    lambda: engine.settle(),
    lambda: engine.checker("p"),
    lambda: engine.feedback.ask("p", wait=0.0),
    lambda: engine.send_in_transaction([("t", b"3")], lambda tx: "commit"),
    lambda: engine.transaction(bind=None).commit(),
):
    try:
        call()
    except fmq.errors.Unreadable as error:
        assert "ulimit -n" in str(error), error
        refused.append(call)
for each in taken:
    os.close(each)
for call in refused:
    call()
assert engine.outcome("T").state == "rolled back"
engine.close()
"""


def test_too_many_open_files_do_not_prevent_a_decision(tmp_path: Path) -> None:
    """Modules that a call needs are imported before, or the call is refused whole."""
    with fmq.open(tmp_path / "d") as engine:
        engine.send("t", b"1")
        tx = engine.transaction(tx_id="T")
        tx.send("t", b"no")
        tx.prepare()
    command = [sys.executable, "-c", OUT_OF_FILES, str(tmp_path / "d")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=180)
    assert (done.returncode, done.stderr) == (0, "")
