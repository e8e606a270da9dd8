"""What a program finds on macOS and Windows.

These tests pretend: a process takes away what Python lacks on that system, and its name of ours.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import fmq
from fmq.machine.mounts import mount_of, remote_kind
from fmq.posix.mount_table import of_macos

ROOT = Path(fmq.__file__).parent.parent
MACOS = """
import builtins, fcntl, os, socket, sys, sysconfig
sysconfig.get_config_vars()  # read once, from a file that has the system in its name
for name in ("posix_fallocate", "RWF_DSYNC", "fdatasync", "O_PATH", "sched_getaffinity"):
    delattr(os, name)
for name in ("MSG_NOSIGNAL", "SOCK_CLOEXEC", "SO_PEERCRED"):
    delattr(socket, name)
sys.platform = "darwin"

def without_flags(fd, buffers, offset, pwritev=os.pwritev):
    return pwritev(fd, buffers, offset)

def without_proc(call):
    def called(path, *args, **named):
        if str(path).startswith("/proc/"):
            raise FileNotFoundError(path)
        return call(path, *args, **named)
    return called

syncs = []
def with_full_sync(fd, what, *args, fcntl=fcntl.fcntl):
    if what != 51:
        return fcntl(fd, what, *args)
    syncs.append(fd)
    os.fsync(fd)

os.pwritev = without_flags
os.open, os.readlink, builtins.open = map(without_proc, (os.open, os.readlink, open))
fcntl.F_FULLFSYNC, fcntl.fcntl = 51, with_full_sync
ask = socket.socket.getsockopt
class Socket(socket.socket):
    def getsockopt(self, level, option, size=0):
        if (level, option, size) == (0, 1, 76):
            return b"\\0" * 4 + os.getuid().to_bytes(4, "little") + b"\\0" * 68
        return ask(self, level, option, size)
socket.socket = Socket
import fmq
"""
WINDOWS = """
import os, signal, socket, sys
for name in ("fcntl", "grp", "pwd", "resource", "termios"):
    sys.modules[name] = None
constants = ["O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK", "O_PATH", "RWF_DSYNC"]
calls = ["fork", "geteuid", "getuid", "posix_fallocate", "pread", "pwrite", "pwritev", "uname"]
for name in [*constants, *calls, "register_at_fork"]:
    delattr(os, name)
for name in ("AF_UNIX", "MSG_DONTWAIT", "SOCK_CLOEXEC", "SO_PEERCRED", "TCP_USER_TIMEOUT"):
    delattr(socket, name)
del signal.pthread_sigmask
class Socket(socket.socket):  # the timeouts of Windows are numbers of milliseconds
    def setsockopt(self, level, option, value):
        if option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            value = (value // 1000).to_bytes(8, "little") + bytes(8)
        super().setsockopt(level, option, value)
socket.socket = Socket
sys.platform = "win32"
import fmq
"""
CALL = """
try:
    {call}
except fmq.errors.UnsupportedSystem as error:
    print(error.system, error)
"""


def run(script: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_on_macos_a_send_is_written_and_synced_past_the_cache_of_the_drive(tmp_path: Path) -> None:
    """F_FULLFSYNC is called for each send. What was sent is read on Linux."""
    send = """
with fmq.open("shop", fmq.Options(segment_bytes=1 << 16)) as engine:
    for number in range(40):
        before = len(syncs)
        engine.send("orders", b"%d" % number + bytes(4000))
        assert len(syncs) > before
    with engine.transaction(tx_id="t", producer="p") as tx:
        tx.send("orders", b"last")
        tx.prepare()
    print(engine.stats().segments > 1)
"""
    assert run(MACOS + send, tmp_path) == "True"
    assert fmq.check(tmp_path / "shop").ok
    with fmq.open(tmp_path / "shop") as engine:
        found = engine.read("orders")
        assert [each.body.rstrip(b"\0") for each in found] == [b"%d" % n for n in range(40)] + [
            b"last"
        ]


def test_on_macos_a_kill_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    work = """
import signal
engine = fmq.open("shop")
for number in range(1000):
    engine.send("orders", b"%d" % number)
    if number == 20:
        os.write(1, b"20")
        os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run(
        [sys.executable, "-c", MACOS + work],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        check=False,
    )
    assert (done.stdout, done.returncode) == (b"20", -9), done.stderr
    again = """
with fmq.open("shop") as engine:
    print(len(engine.read("orders")))
"""
    assert run(MACOS + again, tmp_path) == "21"


def test_on_macos_one_engine_has_a_directory_and_clients_share_it(tmp_path: Path) -> None:
    share = """
with fmq.open("shop") as engine:
    engine.serve()
    with fmq.connect("shop", start=False) as client:
        client.send("orders", b"one")
    try:
        fmq.open("shop")
    except fmq.errors.Locked as error:
        print("locked", len(engine.read("orders")))
"""
    assert run(MACOS + share, tmp_path) == "locked 1"


def test_on_macos_network_file_systems_are_known_by_the_command_mount() -> None:
    said = """\
/dev/disk3s1s1 on / (apfs, sealed, local, read-only, journaled)
//me@nas/My Share on /Volumes/My Share (smbfs, nodev, nosuid, mounted by me)
nas:/srv on /nfs (nfs)
map auto_home on /System/Volumes/Data/home (autofs, automounted, nobrowse)
"""
    found = of_macos(said)
    assert remote_kind("/Users/me/shop", found) is None
    assert remote_kind("/Volumes/My Share/shop", found) == "smbfs"
    assert remote_kind("/nfs/shop", found) == "nfs"
    assert mount_of("/", found) == (
        "apfs",
        "sealed,local,read-only,journaled,sealed,local,read-only,journaled",
    )


def test_on_macos_a_journal_can_be_read_and_verified(tmp_path: Path) -> None:
    with fmq.open(tmp_path / "shop") as engine:
        engine.send_many("orders", [b"one", b"two"])
    read = """
assert fmq.check("shop").ok
with fmq.open("shop", read_only=True) as engine:
    print([message.body for message in engine.read("orders", queue=0, offset=0)])
"""
    assert run(MACOS + read, tmp_path) == "[b'one', b'two']"


def test_on_macos_an_engine_runs_on_a_disk_in_memory(tmp_path: Path) -> None:
    send = """
from fmq.testing import CrashDisk
with fmq.open("shop", disk=CrashDisk()) as engine:
    print(engine.send("orders", b"one").offset)
"""
    assert run(MACOS + send, tmp_path) == "0"


def test_on_windows_fmq_can_be_imported_and_opens_nothing(tmp_path: Path) -> None:
    """Each call says the same, not only the first."""
    for call in ("fmq.open('shop')", "fmq.open('shop', read_only=True)", "fmq.check('shop')"):
        said = run(WINDOWS + CALL.format(call=call) * 2, tmp_path)
        sentence = (
            "win32 fmq writes on Linux and macOS only, and this is win32. Nothing was changed. "
        )
        sentence += (
            'Here fmq is a client: fmq.connect("tcp://host:port") works. Run `fmq serve` on '
        )
        sentence += "Linux."
        assert said.splitlines() == [sentence] * 2
    assert not list(tmp_path.iterdir())


def test_on_windows_a_client_works_over_tcp(tmp_path: Path) -> None:
    """With the room that knows the system's files taken away altogether."""
    with fmq.open(tmp_path / "shop") as engine:
        token = tmp_path / "token"
        token.write_text("ab" * 32)
        token.chmod(0o600)
        server = engine.serve(tcp="127.0.0.1:0", token_file=str(token))
        (port,) = (each[1] for each in server.addresses if isinstance(each, tuple))
        use = f"""
engine = fmq.connect("tcp://127.0.0.1:{port}", token_file={str(token)!r})
with engine:
    with engine.transaction() as tx:
        tx.send("orders", b"one")
        tx.send("orders", b"two")
    with engine.consumer("orders", group="g") as consumer:
        for delivery in consumer.poll(timeout=10):
            delivery.ack()
    print([each.unread for each in engine.groups("g")])
"""
        assert run(WINDOWS + use, tmp_path) == "[0]"
        assert len(engine.read("orders")) == 2
