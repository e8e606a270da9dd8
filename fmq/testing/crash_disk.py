"""A disk in memory whose power fails when a test says so.

    disk = CrashDisk(crash_at=17)
    ...                                   # operation 17 raises PowerLoss, as does all after it
    for state in disk.states():           # every disk that the power cut may have left
        ...                               # open it, and see whether the promises were kept

It promises what POSIX does and no more, which is less than ext4 and XFS keep. A synced write
makes durable the bytes that it wrote, and so much length as they need; `File.sync` all bytes
of the file; `Directory.sync` the names in that directory. Whatever else was done is pending:
after a power cut any part of it may be there, in any combination. A file's bytes belong to
the file, not to its name: a synced file whose name was not synced may be gone, and a name that
was synced may lead to an empty file.

After a kill everything is there that had been seen, and what was pending is pending still.
Kill and power cut can follow each other; each gives a new disk and leaves the old one alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import blake2b
from random import Random

from fmq.errors import NotAStore
from fmq.errors.storage_errors import no_parent
from fmq.testing.changes import Change
from fmq.testing.crash_files import CrashDirectory
from fmq.testing.image import Image
from fmq.testing.losses import Loss, losses, random_loss
from fmq.testing.nodes import Folder, Inode, NameChange, Node
from fmq.testing.power import Power


class CrashDisk:
    """Files in memory, and the power cuts that they may meet. Any thread may call it.

    Operation number `crash_at`, counted from 0, is not performed but raises PowerLoss; a
    synced write may be pending then, as the power may fail between its write and its sync.
    `loss` is what this disk's past life lost, None if it had none or was killed. A disk that
    is not `honest` reports syncs as done and does nothing: tests that pass on it test nothing.
    """

    def __init__(self, crash_at: int | None = None, *, honest: bool = True) -> None:
        self.loss: Loss | None = None
        self._root = Folder({})
        self._power = Power(crash_at, 0, honest=honest)
        self._fingerprint: str | None = None  # the fingerprint, kept until the next use of the disk

    @property
    def operations(self) -> int:
        """Return the number of operations so far that changed something on this disk or made it
        durable.
        """
        return len(self._power.history)

    @property
    def history(self) -> list[str]:
        """Return the operations so far as lines such as `write data/a 4096+120 sync`."""
        return self._power.history.copy()

    @property
    def has_power(self) -> bool:
        """Return whether uses of this disk do not raise PowerLoss."""
        return not self._power.is_off

    @property
    def opened(self) -> set[str]:
        """Return the paths of all files opened so far. The caller may clear the set."""
        return self._power.opened

    def watch(self, watcher: Callable[[str], None] | None) -> None:
        """Call `watcher` before each operation, with the operation's line of `history`.

        To it this disk is one that crashes at that operation: `after_kill`, `states` and
        `losses` give what such a crash leaves. Then the operation happens, and all goes on.
        """
        self._power.watcher = watcher

    def name_of(self, number: int) -> str:
        """Return the line of `history` with this number, which a Loss names; also of an earlier
        life.
        """
        return self._power.so_far().name_of(number)

    def directory(self, path: str, *, make: bool) -> CrashDirectory:
        *above, name = ["", *[part for part in path.split("/") if part not in ("", ".")]]
        with self._power as power:
            parent = self._find(above) if above[1:] else self._root
            if parent is None:
                raise no_parent(path)
            if make and name:
                if name not in parent.seen:
                    number = power.number
                    power.spend(f"mkdir {path}")
                    parent.change(NameChange(number, Folder({}), name))
                power.spend(f"directory sync {path.rpartition('/')[0] or '.'}")
                if power.honest:
                    parent.sync()
            folder = self._find([*above, name])
            if folder is None:
                raise NotAStore(f"{path}: not a directory, or not there. Nothing was changed.")
            return CrashDirectory(power, folder, path)

    def random(self, size: int) -> bytes:
        """Return `size` bytes that differ from call to call, and are the same in every run."""
        with self._power as power:
            power.drawn += 1
            seed = f"{power.number} {power.drawn}".encode()
            return blake2b(seed, digest_size=size).digest()

    def _find(self, names: list[str]) -> Folder | None:
        node: Node | None = self._root
        for name in filter(None, names):
            node = node.seen.get(name) if isinstance(node, Folder) else None
        return node if isinstance(node, Folder) else None

    def stopped(self) -> CrashDisk:
        """Return a copy of this disk as a power failure now would find it."""
        with self._power.lock:
            twins = self._twins()
            power = self._power
            disk = self._successor(self._root.copy(twins), None, power.number)
            if power.interrupted is not None:
                inode, write = power.interrupted
                twin = twins.get(inode)
                disk._power.interrupted = (twin, write) if isinstance(twin, Inode) else None
        disk.stop()
        return disk

    def stop(self) -> None:
        """Let the power fail now: each later use of this disk raises PowerLoss."""
        with self._power.lock:
            self._power.stop()

    def pending(self) -> list[Change]:
        """Return the changes that a power cut could take back now, in their order."""
        with self._power.lock:
            return sorted(self._root.pending(), key=lambda change: change.number)

    def after_kill(self, *, written: bool = True, crash_at: int | None = None) -> CrashDisk:
        """Return the disk that the next process finds if this process is killed now.

        If a synced write was interrupted, `written` says whether its bytes can be seen.
        """
        disk, twins = self._copy(crash_at)
        if self._power.interrupted is not None:
            inode, write = self._power.interrupted
            twin = twins.get(inode)
            if isinstance(twin, Inode):
                if written:
                    twin.show(write)
                else:
                    twin.resume(write)
        return disk

    def after_power_loss(self, seed: int, *, crash_at: int | None = None) -> CrashDisk:
        """Return one of the disks that a power cut may leave now, chosen by `seed`."""
        return self.after(random_loss(self.pending(), Random(seed)), crash_at=crash_at)

    def after(self, loss: Loss, *, crash_at: int | None = None) -> CrashDisk:
        """Return the disk that a power cut leaves if `loss` is lost. Equal arguments give equal
        disks.
        """
        with self._power.lock:
            disk = self._successor(self._root.after(loss), crash_at, self._power.number + 1)
            disk._power.boot += 1
        disk.loss = loss
        return disk

    def losses(self, seed: int = 0) -> Iterator[Loss]:
        """Yield what a power cut may cost now, simple cases first. `seed` chooses if there are too
        many.
        """
        return losses(self.pending(), Random(seed))

    def states(self, seed: int = 0) -> Iterator[CrashDisk]:
        """Yield the different disks that a power cut may leave now. The `loss` of each names its
        case.
        """
        snapshot, _ = self._copy(None)
        known = set()
        for loss in snapshot.losses(seed):
            disk = snapshot.after(loss)
            fingerprint = disk.fingerprint()
            if fingerprint not in known:
                known.add(fingerprint)
                yield disk

    def fingerprint(self, *, but: str = "") -> str:
        """Return a digest of all visible names and bytes: equal for disks that look equal, and for
        no others.

        What is called `but` does not matter.
        """
        with self._power.lock:
            if but or self._power.was_used:
                return self._root.digest(but).hex()
            if self._fingerprint is None:
                self._fingerprint = self._root.digest(but).hex()
            return self._fingerprint

    def files(self, path: str) -> dict[str, Image]:
        """Return the visible files in the directory at `path`; none if it does not exist.

        What happens to the disk later does not change them. The disk may be without power.
        """
        with self._power.lock:
            folder = self._find(path.split("/"))
            seen = {} if folder is None else folder.seen
            return {name: f.seen.share() for name, f in seen.items() if isinstance(f, Inode)}

    def situation(self, *, but: str = "") -> str:
        """Return a digest of what is visible, durable and pending.

        So the same can happen to them from now on. What is called `but` does not matter.
        """
        with self._power.lock:
            return self._root.situation(but).hex()

    def _copy(self, crash_at: int | None) -> tuple[CrashDisk, dict[Node, Node]]:
        """Return a copy of this disk, pending changes included, and the copy of each node."""
        with self._power.lock:
            twins = self._twins()
            number = self._power.number + 1
            return self._successor(self._root.copy(twins), crash_at, number), twins

    def _twins(self) -> dict[Node, Node]:
        """Return a changeable copy of the node that was being written, if any."""
        if self._power.interrupted is None:
            return {}
        inode, _ = self._power.interrupted
        return {inode: inode.twin()}

    def _successor(self, root: Folder, crash_at: int | None, first_number: int) -> CrashDisk:
        disk = CrashDisk.__new__(CrashDisk)  # skip __init__, because millions of disks are made
        disk.loss = disk._fingerprint = None
        disk._root = root
        power = self._power
        disk._power = Power(crash_at, first_number, honest=power.honest, past=power.so_far())
        disk._power.boot = power.boot
        return disk
