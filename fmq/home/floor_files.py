"""The derived files that a floor names: the newest checkpoint of the owner, and what an engine
reads that begins there. They are hints: without them a machine replays the journal.

A file is in one or several pieces, which are objects of their own. The name of a piece begins with
the number of the floor that was the first to name it. So an owner knows what no floor will name
again: what is older than its own, and not in that.
"""

from __future__ import annotations

from typing import NamedTuple

CHECKPOINT = "checkpoint"
"""What the checkpoint is called among the files: here it needs no two slots."""


class FilePiece(NamedTuple):
    """Bytes of a derived file that are an object of their own."""

    floor: int
    start: int
    end: int
    crc: int

    def key(self, name: str) -> str:
        """Return the key of this piece of the file `name`. NATS takes no dots in it."""
        place = f"{self.start:010d}-{self.end:010d}-{self.crc:08x}"
        return f"files/{self.floor:020d}-{name.replace('.', '-')}-{place}"


class FloorFiles(NamedTuple):
    """The derived files of a floor."""

    end: int
    """The end of the journal at the floor. No checkpoint of it may say anything of what follows."""
    upto: int
    """The position of the checkpoint."""
    pieces: dict[str, list[FilePiece]]
    """Of each file, by its name in the directory."""


NO_FILES = FloorFiles(0, -1, {})
