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
    """
    kind, _ = mount_of(path, mountinfo)
    return kind if kind in REMOTE else None


def mount_of(path: str, mountinfo: str) -> tuple[str, str]:
    """Return the kind and the options of the file system at the real `path`; "" if the list does
    not have it.

    It is the mount with the longest name. If several have that name, the last one hides the others.
    """
    longest, kind, options = "", "", ""
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields, of_file_system = before.split(" "), after.split(" ")
        if len(fields) < 6 or len(of_file_system) < 3:
            continue
        point = _unescaped(fields[4])
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(longest):
            longest, kind = point, of_file_system[0]
            options = f"{fields[5]},{of_file_system[2]}"
    return kind, options


def _unescaped(point: str) -> str:
    """Replace octal numbers, which the kernel writes for blanks and backslashes, by characters."""
    for code in ("040", "011", "012", "134"):
        point = point.replace("\\" + code, chr(int(code, 8)))
    return point
