"""A directory that another machine serves is refused for writing, and told from a local one."""

from __future__ import annotations

from pathlib import Path

import pytest

import fmq
from fmq.errors import RemoteFileSystem
from fmq.machine.mounts import REMOTE, remote_kind
from fmq.posix import RealDirectory, RealDisk

MOUNTS = r"""
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
23 22 0:50 / /mnt rw - nfs4 server:/export rw,vers=4.2
24 23 0:51 / /mnt/fast\040disk rw shared:7 master:1 - xfs /dev/vdb rw
25 22 0:52 / /share rw - ext4 /dev/vdc rw
26 22 0:53 / /share rw - cifs //server/share rw
27 22 0:54 / /home rw - fuse.sshfs me@server: rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", None),
        ("/mnt", "nfs4"),
        ("/mnt/data/deep", "nfs4"),
        ("/mnt/fast disk/data", None),
        ("/mnt/fast", "nfs4"),
        ("/mntx", None),
        ("/share/data", "cifs"),
        ("/home", "fuse.sshfs"),
    ],
)
def test_the_mount_of_a_path_says_whether_it_is_remote(path: str, kind: str | None) -> None:
    """The longest mount point counts, and of two at one place the one that hides the other."""
    assert remote_kind(path, MOUNTS) == kind


@pytest.mark.parametrize("text", ["", "nonsense", "1 2 3\n - ext4\n", "- - - -\n\n"])
def test_an_unknown_file_system_is_not_refused(text: str) -> None:
    assert remote_kind("/mnt", text) is None


def test_the_set_of_remote_kinds_has_no_local_file_system() -> None:
    assert {"nfs", "nfs4", "cifs", "smb3", "ceph"} <= REMOTE
    assert not {"ext4", "xfs", "btrfs", "tmpfs", "overlay"} & REMOTE


class Elsewhere(RealDisk):
    """Files of this machine, of which it says that they lie on NFS."""

    def directory(self, path: str, *, make: bool) -> RealDirectory:
        directory = super().directory(path, make=make)
        directory._mounted.remote = "nfs4"
        return directory


def test_a_remote_directory_is_refused_for_writing_and_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "d"
    with fmq.open(path) as engine:
        engine.send("t", b"0")
    before = sorted(each.name for each in path.iterdir())
    with pytest.raises(RemoteFileSystem, match="allow_remote=True") as caught:
        fmq.open(path, disk=Elsewhere())
    assert (caught.value.path, caught.value.kind) == (str(path), "nfs4")
    assert sorted(each.name for each in path.iterdir()) == before
    with fmq.open(path, read_only=True, disk=Elsewhere()) as engine:
        assert [message.body for message in engine.read("t")] == [b"0"]
    with fmq.open(path, disk=Elsewhere(allow_remote=True)) as engine:
        engine.send("t", b"1")
