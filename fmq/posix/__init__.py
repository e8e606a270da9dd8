"""The files of this machine, by system calls. No other part of fmq touches the file system.

Everything below a directory is opened relative to it, without following symbolic links. What is
made has the permissions that are asked for, whatever the umask: by default 0600 for files and 0700
for directories.
"""

from fmq.posix.directory import RealDirectory
from fmq.posix.engine_lock import host_name
from fmq.posix.file import ZEROS_BYTES, RealFile
from fmq.posix.forks import after_fork_in_child, around_forks
from fmq.posix.mount_table import mountinfo
from fmq.posix.real_disk import RealDisk, absolute

__all__ = [
    "ZEROS_BYTES",
    "RealDirectory",
    "RealDisk",
    "RealFile",
    "absolute",
    "after_fork_in_child",
    "around_forks",
    "host_name",
    "mountinfo",
]
