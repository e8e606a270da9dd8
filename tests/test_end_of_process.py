"""A process that ends normally without `close()` keeps what its calls did not wait for.

Method: a child process sends on the real disk with a clock that stands still, so that nothing is
synced but by its end. The parent then reads the directory.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import fmq
from tests import warm

BEGIN = """
import atexit, os, sys, threading
at_last = []  # handlers are called in reverse order
atexit.register(lambda: [handler() for handler in at_last])
import fmq
from fmq.testing import FakeClock

path, mode = sys.argv[1:]
options = fmq.Options() if mode == "sync=False" else fmq.Options(sync=mode)

def opened(path):
    return fmq.open(path, options, clock=FakeClock())

def send(engine, count=100):
    for number in range(count):
        engine.send("t", b"%d" % number, sync=False if mode == "sync=False" else None)
"""

ENDINGS = {
    "the last line": (0, "send(opened(path))"),
    "sys.exit": (3, "send(opened(path)); sys.exit(3)"),
    "an exception": (1, "send(opened(path)); raise ValueError"),
    "an interrupt": (-2, "send(opened(path)); raise KeyboardInterrupt"),
    "a thread that goes on": (
        0,
        """
engine = opened(path)
send(engine, 50)
threading.Thread(target=lambda: (threading.main_thread().join(), send(engine, 50))).start()
""",
    ),
    "a handler that is called last": (
        0,
        "engine = opened(path); send(engine, 50); at_last.append(lambda: send(engine, 50))",
    ),
}


def run(script: str, path: Path, mode: str = "interval") -> subprocess.CompletedProcess[str]:
    """Run BEGIN and `script` in a child, to its end."""
    return warm.run(["-c", BEGIN + script, path, mode])


def count(path: Path) -> int:
    """Return how many messages there are, in a directory that must be sound."""
    assert fmq.check(path).ok
    with fmq.open(path) as engine:
        return sum(queue.next for queue in engine.queues())


@pytest.mark.parametrize("mode", ["interval", "never", "sync=False"])
@pytest.mark.parametrize("ending", ENDINGS)
def test_a_normal_end_of_a_process_loses_nothing(tmp_path: Path, ending: str, mode: str) -> None:
    """This holds in every mode, and for calls with sync=False."""
    code, script = ENDINGS[ending]
    done = run(script, tmp_path / "d", mode)
    assert done.returncode == code, done.stderr
    assert "fmq" not in done.stderr
    assert count(tmp_path / "d") == 100


def test_a_decision_without_sync_survives_a_normal_end(tmp_path: Path) -> None:
    """So do its messages, and an ack."""
    script = """
engine = opened(path)
tx = engine.transaction(tx_id="tx")
tx.send("t", b"0")
tx.prepare()
tx.commit(sync=False)
engine.send("u", b"1")
for delivery in engine.consumer("u", group="g").poll():
    delivery.ack(sync=False)
"""
    done = run(script, tmp_path / "d", "always")
    assert (done.returncode, done.stderr) == (0, "")
    with fmq.open(tmp_path / "d") as engine:
        assert engine.outcome("tx").state == "committed"
        assert [message.body for message in engine.read("t")] == [b"0"]
        assert engine.consumer("u", group="g").poll() == []


def test_every_engine_is_synced_at_the_end_even_if_another_fails(tmp_path: Path) -> None:
    """stderr has one error, and none of an engine that had failed before."""
    script = """
from fmq.posix import RealDisk
from fmq.testing import FaultDisk
engines = []
for name in ("a", "failed", "failing", "z"):
    disk = FaultDisk(RealDisk())
    engine = fmq.open(path + name, options, disk=disk, clock=FakeClock())
    send(engine)
    if name == "failed":
        disk.fail("write", names="*.seg")
        try:
            engine.sync()
        except fmq.errors.EngineFailed:
            pass
    if name == "failing":
        disk.fail("write", names="*.seg")
    engines.append(engine)
"""
    done = run(script, tmp_path / "d")
    assert done.returncode == 0
    assert done.stderr.count("EngineFailed: ") == 1, done.stderr
    assert [count(tmp_path / f"d{name}") for name in "az"] == [100, 100]
    assert {count(tmp_path / f"d{name}") for name in ("failed", "failing")} <= {0, 100}


def test_a_forked_child_that_ends_does_not_sync_its_parents_engine(tmp_path: Path) -> None:
    """The parent goes on."""
    script = """
engine = opened(path)
send(engine)
if os.fork() == 0:
    sys.exit(0)
print(os.waitstatus_to_exitcode(os.wait()[1]))
with fmq.open(path, read_only=True) as reader:
    print(reader.queues())
send(engine)
"""
    done = run(script, tmp_path / "d")
    assert (done.stdout, done.stderr) == ("0\n[]\n", "")
    assert count(tmp_path / "d") == 200


@pytest.mark.parametrize("start", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize("ending", ["", "raise ValueError", "sys.exit(1)"])
def test_a_worker_of_multiprocessing_loses_nothing_at_its_end(
    tmp_path: Path, start: str, ending: str
) -> None:
    """Such a child ends without atexit."""
    script = tmp_path / "program.py"
    script.write_text(f"""
import multiprocessing, sys
import fmq
from fmq.testing import FakeClock

def work(path):
    engine = fmq.open(path, fmq.Options(sync="interval"), clock=FakeClock())
    for number in range(100):
        engine.send("t", b"x")
    {ending}

if __name__ == "__main__":
    context = multiprocessing.get_context({start!r})
    workers = [context.Process(target=work, args=[sys.argv[1] + name]) for name in "ab"]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
""")
    command = [script, tmp_path / "d"]
    assert warm.run(command).returncode == 0
    assert [count(tmp_path / f"d{name}") for name in "ab"] == [100, 100]


def test_a_process_ends_even_if_daemon_threads_go_on_sending(tmp_path: Path) -> None:
    script = """
engine = opened(path)
sent = threading.Event()

def work():
    while True:
        receipt = engine.send("t", b"x")
        sent.set()

for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
sent.wait()
"""
    for mode in ("interval", "always"):
        done = run(script, tmp_path / mode, mode)
        assert (done.returncode, done.stderr) == (0, "")
        assert count(tmp_path / mode) > 0


@pytest.mark.parametrize(
    "end", ["os._exit(0)", "os.kill(os.getpid(), 9)", "os.kill(os.getpid(), 15)"]
)
def test_a_kill_loses_only_what_was_not_synced(tmp_path: Path, end: str) -> None:
    """With sync="never" it loses nothing."""
    script = f"engine = opened(path); send(engine, 50); engine.sync(); send(engine, 50); {end}"
    for mode, kept in (("interval", 50), ("sync=False", 50), ("never", 100)):
        run(script, tmp_path / mode, mode)
        assert count(tmp_path / mode) == kept
