"""Finding the kind of file system of a path in the kernel's list of mounts."""

from __future__ import annotations

# For these, locks and syncs depend on a server, and several servers do not do what they promise.
REMOTE = {
    "afs", "ceph", "cifs", "fuse.glusterfs", "fuse.s3fs", "fuse.sshfs", "lustre", "ncpfs",
    "nfs", "nfs4", "smb2", "smb3", "smbfs",
}  # fmt: skip


def remote_kind(path: str, mountinfo: str) -> str | None:
    """Return the kind of the file system at the real `path` if another machine serves it, else
    None.

    It is the mount with the longest name. If several have that name, the last one hides the others.
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
    """Replace octal numbers, which the kernel writes for blanks and backslashes, by characters."""
    for code in ("040", "011", "012", "134"):
        point = point.replace("\\" + code, chr(int(code, 8)))
    return point
