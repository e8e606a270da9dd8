"""Files and directories in memory: the visible state of each, and the durable one.

In between lie the changes that are pending. A disk after a crash is a copy of this tree: a
kill copies all of it, a power cut what is durable and the pending changes that its Loss names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from random import Random

from fmq.testing.changes import Change, Cut, FileChange
from fmq.testing.image import Image
from fmq.testing.losses import Loss

NO_CHANGES: tuple[FileChange, ...] = ()


class Inode:
    """One file, without its name.

    One that is `shared` belongs to several disks and never changes; whoever opens it on one of
    them has that disk get a twin of its own.
    """

    __slots__ = (
        "_left",
        "changes",
        "durable",
        "number",
        "page",
        "path",
        "pins",
        "seen",
        "shared",
        "spoiled",
    )

    def __init__(self, number: int, seen: Image, durable: Image) -> None:
        self.number = number
        self.path = ""  # the name by which the file was last opened or renamed, for messages
        self.seen = seen  # what a read returns: the bytes in the page cache
        self.durable = durable
        self.changes = NO_CHANGES  # pending changes; even the first of them is not durable
        # The holders of its lock, and whether each has the exclusive one.
        self.pins: dict[object, bool] | None = None
        self.page: bytearray | None = None  # the memory of a page, which has no other bytes
        self.spoiled = False  # True once nothing becomes durable any more
        self.shared = False
        # What `after` returned, kept if it does not depend on which changes are lost.
        self._left: Inode | None = None

    def change(self, change: FileChange) -> None:
        """Make `change` visible, and durable or pending as it says."""
        self.show(change)
        if self.spoiled:
            return
        if change.durable and not self.changes:
            self.durable = self._with((change,))
        else:
            # Even a durable change waits if an earlier one is pending, because the later one must
            # win.
            self.changes = (*self.changes, change)

    def show(self, change: FileChange) -> None:
        """Make `change` visible. The caller decides whether it survives."""
        self.seen = self.seen.own()
        change.apply(self.seen)

    def interrupt(self, change: FileChange) -> None:
        """Make `change` pending without making it visible: the power may fail before a reader sees
        it.
        """
        if not self.spoiled:
            self.changes = (*self.changes, change)

    def resume(self, change: FileChange) -> None:
        """Undo `interrupt`, because the power did not fail."""
        self.changes = tuple(each for each in self.changes if each is not change)

    def sync(self) -> None:
        """Make every change durable."""
        if self.changes:
            self.durable = self._with(self.changes)
            self.changes = NO_CHANGES

    def _with(self, changes: Iterable[FileChange]) -> Image:
        image = self.durable.own()
        for change in changes:
            change.apply(image)
        return image

    def lose_pending(self) -> None:
        """Keep the pending changes visible, but never make them durable."""
        self.changes = tuple(change for change in self.changes if change.durable)
        self.sync()

    def pin(self, who: object, *, exclusive: bool) -> bool:
        """Take a lock for `who`, as flock does: an earlier lock of `who` is lost even if this call
        is refused.
        """
        if self.pins is None:
            self.pins = {}
        self.pins.pop(who, None)
        if True in self.pins.values() or (exclusive and self.pins):
            return False
        self.pins[who] = exclusive
        return True

    def pending(self) -> Iterator[Change]:
        return (change for change in self.changes if not change.durable)

    def twin(self) -> Inode:
        """Return a copy that is not shared."""
        twin = Inode(self.number, self.seen.share(), self.durable.share())
        twin.changes = self.changes
        twin.spoiled = self.spoiled
        twin.page = None if self.page is None else bytearray(self.page)
        return twin

    def copy(self, twins: dict[Node, Node]) -> Inode:
        """Return a copy that other disks may share."""
        if self.shared:
            return self
        twins[self] = twin = self.twin()
        twin.shared = True
        return twin

    def after(self, loss: Loss) -> Inode:
        """Return what a power cut leaves. The result is shared if it does not depend on `loss`."""
        if self._left is not None:
            return self._left
        if self.page is not None:
            self._left = Inode(self.number, self.seen, self.durable)
            # a power cut may leave any bytes in a page
            self._left.page = bytearray(b"\xff" * len(self.page))
            self._left.shared = True
            return self._left
        image = self.durable.share()
        torn = loss.torn
        if not self.changes:
            left = Inode(self.number, image, image)
            left.shared = True
            if self.shared:
                self._left = left._left = left
            return left
        image = image.own()
        for change in self.changes:
            if change.durable or change.number in loss.kept:
                change.apply(image)
            elif torn is not None and torn.number == change.number:
                change.tear(image, torn.cut, torn.tear)
        return Inode(self.number, image.share(), image)

    def digest(self, but: str) -> bytes:
        return self.seen.digest()

    def situation(self, but: str) -> bytes:
        both = self.seen.digest() + self.durable.digest()
        return both + b"".join([each.digest() for each in self.changes]) if self.changes else both


class Folder:
    """One directory: names, and the node of each. A node has at most one name."""

    __slots__ = ("changes", "durable", "holder", "seen")

    def __init__(self, names: dict[str, Node]) -> None:
        self.holder: object = None  # the holder of the lock of the file
        self.seen = names
        self.durable = names.copy()
        self.changes: list[NameChange] = []

    def change(self, change: NameChange) -> None:
        change.apply(self.seen)
        self.changes.append(change)

    def sync(self) -> None:
        for change in self.changes:
            change.apply(self.durable)
        self.changes.clear()

    def own(self, name: str) -> Node | None:
        """Return the node called `name`. If a file is shared, copy it for this disk first."""
        node = self.seen.get(name)
        if isinstance(node, Inode) and node.shared:
            twin = self.seen[name] = node.twin()
            if not self.changes and self.durable.get(name) is node:
                self.durable[name] = twin
                return twin
            for each in _names_of(node, self.durable):
                self.durable[each] = twin
            self.changes = [
                NameChange(change.number, twin, change.name) if change.node is node else change
                for change in self.changes
            ]
            return twin
        return node

    def pending(self) -> Iterator[Change]:
        """Return what is pending in this directory and below, except for files whose names are gone
        for good.
        """
        yield from self.changes
        for node in {*self.durable.values(), *(change.node for change in self.changes)}:
            yield from node.pending()

    def copy(self, twins: dict[Node, Node]) -> Folder:
        def twin(node: Node) -> Node:
            return twins.get(node) or node.copy(twins)

        copied = Folder({name: twin(node) for name, node in self.seen.items()})
        copied.durable = {name: twin(node) for name, node in self.durable.items()}
        copied.changes = [
            NameChange(change.number, twin(change.node), change.name) for change in self.changes
        ]
        twins[self] = copied
        return copied

    def after(self, loss: Loss) -> Folder:
        names = self.durable.copy()
        for change in self.changes:
            if change.number in loss.kept:
                change.apply(names)
        return Folder({name: node.after(loss) for name, node in names.items()})

    def digest(self, but: str) -> bytes:
        """Return a digest of the visible names and bytes, without the node called `but`."""
        parts: list[bytes] = []
        for name, node in sorted(self.seen.items()):
            if name == but:
                continue
            parts += (name.encode(), b"/" if isinstance(node, Folder) else b"\0", node.digest(but))
        return blake2b(b"".join(parts), digest_size=16).digest()

    def situation(self, but: str) -> bytes:
        """Return a digest of the visible and the durable names and bytes, and of what is pending.

        What has the name `but` does not matter.
        """
        parts: list[bytes] = []
        for names in (self.seen, self.durable):
            for name, node in sorted(names.items()):
                if name != but:
                    parts += (name.encode(), b"\0", node.situation(but))
            parts.append(b"/")
        for change in self.changes:
            if but not in (change.name, *_names_of(change.node, self.durable)):
                parts += (f"{change.name}".encode(), change.node.situation(but))
        return blake2b(b"".join(parts), digest_size=16).digest()


Node = Inode | Folder


def _names_of(node: Node, names: dict[str, Node]) -> list[str]:
    return [name for name, each in names.items() if each is node]


@dataclass(frozen=True, slots=True, eq=False)
class NameChange:
    """The node gets the name `name` in place of its names. With None it has no name any more."""

    number: int
    node: Node
    name: str | None

    def apply(self, names: dict[str, Node]) -> None:
        for name in _names_of(self.node, names):
            del names[name]
        if self.name is not None:
            names[self.name] = self.node

    def tears(self, random: Random) -> Iterator[Cut]:
        """Yield nothing: a rename is lost or survives as a whole."""
        return iter(())
