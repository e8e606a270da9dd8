"""The owner puts the derived files of its directory into the home, before a floor names them."""

from __future__ import annotations

import logging
from contextlib import closing
from zlib import crc32

from fmq.home.floor_files import CHECKPOINT, NO_FILES, FilePiece, FloorFiles
from fmq.home.home_calls import HomeCalls
from fmq.home.home_history import HomeHistory
from fmq.home.objects import NoAnswer
from fmq.machine.disk import Directory
from fmq.recovery.checkpoint import PART, Checkpoint, encode, read
from fmq.recovery.derived_files import derived_names, is_index
from fmq.recovery.layout import read_header

logger = logging.getLogger("fmq.home")


class FilesPut:
    """Knows what the newest floor of one home names. One thread at a time may call it."""

    def __init__(self, calls: HomeCalls, known: FloorFiles) -> None:
        """`known` are the files of the floor that this owner has found."""
        self._calls = calls
        self._last = known
        # Of the files of other owners, the indexes say the same as those here. A file of timers may
        # be another one under the same name.
        self._known = {name: each for name, each in known.pieces.items() if is_index(name)}
        self._has_looked = False  # whether what is known is there

    def put(self, directory: Directory, floor: HomeHistory) -> FloorFiles:
        """Put the newest checkpoint in `directory`, and what belongs to it. What cannot be read is
        left out, and so is a checkpoint that says more than `floor` has.

        If the home does not take all, the floor names the checkpoint of the last one, and the
        indexes that came so far.
        """
        pieces: dict[str, list[FilePiece]] = {}
        try:
            self._last = self._put_all(directory, floor, pieces)
        except (NoAnswer, OSError) as error:
            logger.warning("%s: the checkpoint was not put: %s", self._calls.address, error)
            # What else has come is named by no floor, so the next one removes it.
            came = {**self._known, **pieces}
            self._known = {name: came[name] for name in floor.indexes(came)}
            others = {name: of for name, of in self._last.pieces.items() if not is_index(name)}
            self._last = self._last._replace(pieces={**others, **self._known})
        return self._last

    def _put_all(
        self, directory: Directory, floor: HomeHistory, pieces: dict[str, list[FilePiece]]
    ) -> FloorFiles:
        """Put the files, and note each one in `pieces`. Raises NoAnswer or OSError."""
        if not self._has_looked:
            there = {f"files/{name}" for name in self._calls.objects.names("files")}
            for name, known in [*self._known.items()]:
                if any(each.key(name) not in there for each in known):
                    del self._known[name]
            self._has_looked = True
        checkpoint = _newest(directory, floor)
        if checkpoint is None:
            self._known = {}
            return NO_FILES
        for name in derived_names(checkpoint):
            known, is_part = self._known.get(name, []), name.endswith(PART)
            if known and not is_part:
                pieces[name] = known
                continue
            data = _bytes_of(directory, name)
            if data is not None:
                data = data[: checkpoint.part_size] if is_part else data
                pieces[name] = self._put(name, data, floor.next, known)
        self._known = {**pieces}
        pieces[CHECKPOINT] = self._put(CHECKPOINT, encode(checkpoint), floor.next, [])
        return FloorFiles(floor.position, checkpoint.applied_upto, pieces)

    def _put(self, name: str, data: bytes, floor: int, known: list[FilePiece]) -> list[FilePiece]:
        """Put what `data` has behind those pieces of the file that are known and still right."""
        pieces, at = list[FilePiece](), 0
        for each in known:
            if crc32(data[at : each.end]) == each.crc and each.end <= len(data):
                pieces.append(each)
                at = each.end
            else:
                break
        most = self._calls.objects.object_bytes_max
        for start in range(at, len(data), most):
            part = data[start : start + most]
            piece = FilePiece(floor, start, start + len(part), crc32(part))
            self._calls.put(piece.key(name), part)
            pieces.append(piece)
        return pieces


def _newest(directory: Directory, floor: HomeHistory) -> Checkpoint | None:
    checkpoint = read(directory, read_header(directory, max(floor.segments)).store)
    if checkpoint is None or checkpoint.applied_upto > floor.position:
        return None
    return checkpoint


def _bytes_of(directory: Directory, name: str) -> bytes | None:
    try:
        with closing(directory.open(name)) as file:
            return file.read(0, file.size())
    except OSError:
        return None
