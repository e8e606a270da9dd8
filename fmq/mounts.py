"""Which kind of file system a path lies on, out of the kernel's list of mounts."""

from __future__ import annotations

# What these promise of locks and syncs is a server's word, and several servers lie.
REMOTE = {
    "afs", "ceph", "cifs", "fuse.glusterfs", "fuse.s3fs", "fuse.sshfs", "lustre", "ncpfs",
    "nfs", "nfs4", "smb2", "smb3", "smbfs",
}  # fmt: skip


def remote_kind(path: str, mountinfo: str) -> str | None:
    """The kind of file system at the real `path`, if another machine serves it.

    It is that of the mount with the longest name; of several there, the last hides the others.
    """
    longest, kind = "", ""
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split(" ")
        if len(fields) < 5 or not after:
            continue
        point = _unescaped(fields[4])
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(longest):
            longest, kind = point, after.split(" ")[0]
    return kind if kind in REMOTE else None


def _unescaped(point: str) -> str:
    """The kernel writes blanks and backslashes in a path as octal numbers."""
    for code in ("040", "011", "012", "134"):
        point = point.replace("\\" + code, chr(int(code, 8)))
    return point
