"""`fmq serve` as a supervisor starts it, and as a process with little memory among bad clients."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

import fmq
from fmq.wire.frames import HEAD, VALUES_BYTES_MAX, VERSION, Op, Splitter, frame
from fmq.wire.values import encode_values
from tests.remote.served import PATIENCE_SECONDS, ROOT, serving

MEMORY_BYTES = 512 << 20


def test_a_supervisor_is_notified_of_the_start_and_end_of_serving(tmp_path: Path) -> None:
    with serving(tmp_path / "d") as served:
        with fmq.connect(served.path, start=False) as client:
            client.send("t", b"1")
        served.end()
    assert not (tmp_path / "d" / "SOCKET").exists()
    with fmq.open(tmp_path / "d") as engine:
        assert [each.body for each in engine.read("t")] == [b"1"]


@pytest.mark.parametrize("name", ["shop.sock", "d/SOCKET"])
def test_the_socket_of_a_supervisor_is_used_and_outlives_the_process(
    tmp_path: Path, name: str
) -> None:
    """Clients that come between two processes are served by the second one."""
    path = tmp_path / "d"
    path.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as passed:
        passed.bind(str(tmp_path / name))
        passed.listen()
        with serving(path, passed=passed) as served:
            with fmq.connect(f"unix:{tmp_path / name}") as client:
                client.send("t", b"1")
            with fmq.connect(path, start=False) as client:
                client.send("t", b"2")
            served.end()
        assert (tmp_path / name).exists()
        (tmp_path / "notify").unlink()
        early = socket.socket(socket.AF_UNIX)
        early.connect(str(tmp_path / name))
        early.sendall(frame(Op.HELLO, 1, encode_values([VERSION, bytes(16), None, "host", 1])))
        with serving(path, passed=passed) as served:
            early.settimeout(PATIENCE_SECONDS)
            assert early.recv(100)
            with fmq.connect(f"unix:{tmp_path / name}") as client:
                assert len(client.read("t")) == 2
            served.end()
        early.close()


def test_a_token_that_others_may_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("ab" * 32)
    (tmp_path / "token").chmod(0o644)
    arguments = ["--tcp", "127.0.0.1:0", "--token-file", str(tmp_path / "token")]
    done = subprocess.run(
        [sys.executable, "-m", "fmq", "serve", str(tmp_path / "d"), *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )
    assert done.returncode != 0
    assert "no secret" in done.stderr
    assert "Traceback" not in done.stderr


def dial(path: Path) -> socket.socket:
    made = socket.socket(socket.AF_UNIX)
    made.settimeout(PATIENCE_SECONDS)
    made.connect(str(path / "SOCKET"))
    return made


def known(path: Path, number: int) -> socket.socket:
    """A connection of a client that has said who it is."""
    made = dial(path)
    made.sendall(frame(Op.HELLO, 1, encode_values([VERSION, number.to_bytes(16), None, "host", 1])))
    splitter = Splitter(1 << 20)
    while not splitter.feed(made.recv(1 << 16)):
        pass
    return made


def ends(made: socket.socket) -> None:
    """Wait until the server has closed a connection."""
    try:
        while made.recv(1 << 16):
            pass
    except ConnectionResetError:
        pass
    finally:
        made.close()


def wide(size: int) -> bytes:
    """JSON of many small lists, which take twenty times as much memory as their text."""
    return b"[" + b"[]," * (size // 3 - 1) + b"0]"


def test_clients_that_ask_for_too_much_memory_are_refused(tmp_path: Path) -> None:
    """The process may have 512 MiB. A client that keeps the rules goes on among those that do not.

    Compressed bodies say that they are of a GiB; frames say so; values are large, or deep, or many.
    """
    path = tmp_path / "d"
    with serving(path, memory=MEMORY_BYTES) as served:
        with fmq.connect(path, start=False) as good:
            (before,) = good.clients()
            number = 0
            for op in (Op.SEND, Op.COMMIT, Op.CALL, Op.POLL, 99):
                bad = known(path, number := number + 1)
                bad.sendall(HEAD.pack(1 << 30, op, 0, 0, 7))
                ends(bad)
                good.send("t", b"1")
            for payload in (wide(VALUES_BYTES_MAX), b"[" * VALUES_BYTES_MAX, b"1" * 1_000_000):
                for op in (Op.CALL, Op.ASK, Op.JOIN, Op.TAKE_ID):
                    bad = known(path, number := number + 1)
                    bad.sendall(frame(op, 7, payload))
                    bad.recv(1 << 16)
                    bad.close()
                    good.send("t", b"1")
            bad = known(path, number := number + 1)
            bad.sendall(frame(Op.SEND, 7, bomb()))
            ends(bad)
            good.send("t", b"1")
            held = [known(path, number := number + 1) for _ in range(64)]
            for each in held:  # each has begun a large frame, and does not go on
                each.sendall(HEAD.pack(VALUES_BYTES_MAX, Op.CALL, 0, 0, 7) + bytes(1 << 16))
            sent = 1 + good.send("t", b"1").offset
            assert sent == 5 + 12 + 1 + 1
            for each in held:
                each.close()
            assert (before.id, before.since) in {(c.id, c.since) for c in good.clients()}
        written = served.end()
        assert "Traceback" not in written


def bomb() -> bytes:
    """The payload of a SEND of one body of a GiB, compressed to four MiB."""
    from struct import pack
    from zlib import crc32

    from fmq.store.bytes.columns import COMPRESSED
    from fmq.wire.runs import RUN
    from fmq.wire.sends import SEND

    size = 1 << 30
    literals = b"\x1f\x00\x01\x00"  # one zero, then copies of it
    bodies = literals + b"\xff" * (size // 255) + pack("<B", 100) + b"\x50" + bytes(5)
    head = RUN.pack(1, COMPRESSED, 0, 1, 0, len(bodies), size, crc32(bodies))
    return SEND.pack(0, 0, 0, 0) + head + b"t" + bodies
