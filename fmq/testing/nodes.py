"""Files and directories in memory, each as it is seen and as it is durable.

In between lie the changes that are pending. A disk after a crash is a copy of this tree: a
kill copies all of it, a power cut what is durable and the pending changes that its Loss names.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from fmq.testing.changes import Change, Cut, FileChange
from fmq.testing.image import Image
from fmq.testing.losses import Loss


class Inode:
    """One file, whatever its name is."""

    __slots__ = ("changes", "durable", "number", "path", "pins", "seen", "spoiled")

    def __init__(self, number: int, seen: Image, durable: Image) -> None:
        self.number = number
        self.path = ""  # for people: the name by which it was opened or renamed last
        self.seen = seen  # what a read returns: the page cache
        self.durable = durable
        self.changes: list[FileChange] = []  # begins with one that is not durable, or is empty
        self.pins: dict[object, bool] = {}  # who holds a lock, and whether an exclusive one
        self.spoiled = False  # whether nothing more becomes durable

    def change(self, change: FileChange) -> None:
        """Let `change` be seen, and be durable or pending as it says."""
        change.apply(self.seen)
        if self.spoiled:
            return
        if change.durable and not self.changes:
            change.apply(self.durable)
        else:
            # Behind a pending change even a durable one waits: what is applied last wins.
            self.changes.append(change)

    def interrupt(self, change: FileChange) -> None:
        """Let `change` be pending though the power failed before anybody could see it."""
        if not self.spoiled:
            self.changes.append(change)

    def resume(self, change: FileChange) -> None:
        """Forget an interruption that did not come."""
        if change in self.changes:
            self.changes.remove(change)

    def sync(self) -> None:
        """Make every change durable."""
        for change in self.changes:
            change.apply(self.durable)
        self.changes.clear()

    def lose_pending(self) -> None:
        """Let the pending changes be seen still, and never be durable."""
        self.changes = [change for change in self.changes if change.durable]
        self.sync()

    def pin(self, who: object, *, exclusive: bool) -> bool:
        """Take a lock for `who`, as flock does: a lock it has is lost even if this is refused."""
        self.pins.pop(who, None)
        if True in self.pins.values() or (exclusive and self.pins):
            return False
        self.pins[who] = exclusive
        return True

    def pending(self) -> Iterator[Change]:
        return (change for change in self.changes if not change.durable)

    def copy(self, twins: dict[Node, Node]) -> Inode:
        twin = Inode(self.number, self.seen.copy(), self.durable.copy())
        twin.changes = self.changes.copy()
        twin.spoiled = self.spoiled
        twins[self] = twin
        return twin

    def after(self, loss: Loss) -> Inode:
        image = self.durable.copy()
        torn = loss.torn
        for change in self.changes:
            if change.durable or change.number in loss.kept:
                change.apply(image)
            elif torn is not None and torn.number == change.number:
                change.tear(image, torn.cut, torn.tear)
        return Inode(self.number, image, image.copy())

    def digest(self) -> bytes:
        return self.seen.digest()


class Folder:
    """One directory: names, and the nodes that have them. A node has one name at most."""

    __slots__ = ("changes", "durable", "seen")

    def __init__(self, names: dict[str, Node]) -> None:
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

    def pending(self) -> Iterator[Change]:
        """What is pending here and below, but for files whose names are gone for good."""
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

    def digest(self) -> list[tuple[str, object]]:
        return sorted((name, node.digest()) for name, node in self.seen.items())


Node = Inode | Folder


@dataclass(frozen=True, slots=True, eq=False)
class NameChange:
    """`node` has the name `name` now, and no other; with None it has none."""

    number: int
    node: Node
    name: str | None

    def apply(self, names: dict[str, Node]) -> None:
        for name in [name for name, node in names.items() if node is self.node]:
            del names[name]
        if self.name is not None:
            names[self.name] = self.node

    def tears(self, random: Random) -> Iterator[Cut]:
        """None: a rename that is lost leaves the old name, one that is kept the new one."""
        return iter(())
