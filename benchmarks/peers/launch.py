"""Become another program, run by another user, that ends when the process that started it ends.

    python launch.py PARENT USER PROGRAM ARGUMENT ...

It is a program of its own as the request is lost when the user changes, and as Python code between
fork and exec is unsafe beside threads. An empty USER is the present one.
"""

import ctypes
import os
import pwd
import signal
import sys

PR_SET_PDEATHSIG = 1
# By this one PostgreSQL ends at once, with all its processes, and MariaDB ends in an orderly way.
END = signal.SIGQUIT


def main(parent: str, user: str, *command: str) -> None:
    if user:
        entry = pwd.getpwnam(user)
        os.initgroups(user, entry.pw_gid)
        os.setgid(entry.pw_gid)
        os.setuid(entry.pw_uid)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, END, 0, 0, 0)
    if os.getppid() != int(parent):
        sys.exit("whoever started this has ended meanwhile")
    os.execv(command[0], command)


if __name__ == "__main__":
    main(*sys.argv[1:])
