"""One run of an export, from the names of directories to files in their places."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from fmq.arguments.path import PathLike, text_of
from fmq.errors import BadOption, ExtraMissing, FmqError, StorageFull
from fmq.export.destination import Destination
from fmq.export.errors import ExportFailed
from fmq.export.layout import TIME_OF, FolderLayout, topic_folder
from fmq.export.manifest import check_same
from fmq.export.out_address import checked_out, destination_at
from fmq.export.plan import CHUNK_BYTES, Gap, Plan, plan, topics_of
from fmq.export.shape import Shape
from fmq.machine.disk import is_full
from fmq.table.fleet import is_fleet, see_all
from fmq.table.pins import pinned
from fmq.table.schema import check_choice
from fmq.table.snapshot import Snapshot
from fmq.table.split import Split

FORMATS = ("parquet", "csv", "json")
ENGINES = ("spark", "arrow")
ON_GAP = ("fail", "skip")


class Backend(Protocol):
    """An engine that makes the files of a chunk."""

    @property
    def name(self) -> str: ...

    def make(
        self, splits: Sequence[Split], staging: str, told: Callable[[int, int], None]
    ) -> None: ...


@dataclass(frozen=True, slots=True)
class Progress:
    """How much a run has exported so far."""

    rows: int
    bytes: int
    """Of the journals, as is `bytes_total`."""
    bytes_total: int


@dataclass(frozen=True, slots=True)
class Exported:
    """The part of one journal that a run has exported: from position `start` up to `end`."""

    path: str
    store: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class ExportReport:
    """What one run of an export has added."""

    out: str
    format: str
    view: str
    engine: str
    rows: int
    bytes: int
    """Of the journals."""
    files: int
    written_bytes: int
    seconds: float
    journals: tuple[Exported, ...]
    gaps: tuple[Gap, ...]
    """What retention had dropped before, with on_gap="skip"."""


def export(
    paths: str | Sequence[str],
    out: str | PathLike,
    *,
    format: str = "parquet",
    view: str = "messages",
    engine: Literal["spark", "arrow"] | None = None,
    text: bool = False,
    raw: bool = False,
    on_gap: Literal["fail", "skip"] = "fail",
    permissive: bool = False,
    chunk_bytes: int = CHUNK_BYTES,
    progress: Callable[[Progress], None] | None = None,
) -> ExportReport:
    """Add to the files in `out` what the journals in `paths` have and the files do not.

    A run that was interrupted, however, has added whole chunks or nothing, and the next one goes
    on there. Without an `engine` it is Arrow, and Spark for the formats that only Spark writes. In
    CSV a text that a spreadsheet would take for a formula gets a ' in front, unless it is to be
    `raw`. Raises BadName if `out` is an address, such as one of s3:// or file://.
    """
    began = time.monotonic()
    out = checked_out(text_of(out))
    named = [paths] if isinstance(paths, str) else list(paths)
    for what, given, known in (
        ("view to export", view, TIME_OF),
        ("value of on_gap", on_gap, ON_GAP),
    ):
        check_choice(what, given, known)
    chosen = engine_for(engine, format)
    shape = Shape(format, view, text, is_fleet(named), raw or format != "csv")
    with _machine(out), ExitStack() as held:
        held.enter_context(pinned(named))
        journals = list(see_all(named, permissive=permissive))
        layout = shape.layout(topics_of(journals, permissive=permissive))
        for topic in layout.topics:
            topic_folder(topic)  # a bad name is refused here, before any file is made
        place = held.enter_context(destination_at(out, shape))
        _go_on(place, shape, journals)
        reached = dict(place.state.reached)
        size = min(chunk_bytes, place.chunk_bytes_max)
        todo = plan(journals, reached, view, skip_gaps=on_gap == "skip", chunk_bytes=size)
        _note_sources(place, journals, todo)
        run = ExportRun(place, layout, todo, progress)
        if todo.chunks:
            run.all(make_engine(chosen, shape, layout, permissive=permissive))
    return ExportReport(
        out,
        format,
        view,
        chosen,
        run.rows,
        todo.bytes,
        run.files,
        run.written,
        time.monotonic() - began,
        tuple(_exported(journal, reached) for journal in journals),
        todo.gaps,
    )


def _go_on(place: Destination, shape: Shape, journals: Sequence[Snapshot]) -> None:
    """Finish what an interrupted run had begun, if that run was of an export with the same
    arguments.
    """
    state = place.state
    if not state.chunks and state.publishing is None:
        # The earlier run stopped before it exported anything, so the new arguments replace its own.
        place.note(replace(state, shape=shape))
    check_same(place.out, place.state, shape, _sources(journals))
    place.finish()
    place.clear_staging()


def _note_sources(place: Destination, journals: Sequence[Snapshot], todo: Plan) -> None:
    state = place.state
    paths, gaps = state.paths | _sources(journals), [*state.gaps, *todo.gaps]
    if todo.gaps or paths != state.paths:
        place.note(replace(state, paths=paths, gaps=gaps))


def _sources(journals: Sequence[Snapshot]) -> dict[str, str]:
    return {journal.store.hex(): journal.path for journal in journals}


def _exported(journal: Snapshot, reached: dict[str, int]) -> Exported:
    store = journal.store.hex()
    start = reached.get(store, journal.first)
    return Exported(journal.path, store, start, max(start, journal.visible_to))


class ExportRun:
    """Exports one chunk after another, and adds up the results."""

    def __init__(
        self,
        place: Destination,
        layout: FolderLayout,
        todo: Plan,
        progress: Callable[[Progress], None] | None,
    ) -> None:
        self._place = place
        self._layout = layout
        self._todo = todo
        self._progress = progress
        self._bytes = 0
        self.rows = 0
        self.files = 0
        self.written = 0

    def all(self, engine: Backend) -> None:
        self._told(0, 0)
        for chunk in self._todo.chunks:
            self._place.clear_staging()
            try:
                if chunk.splits:
                    engine.make(chunk.splits, self._place.staging, self._told)
            except BaseException:
                # Files that are never published must not fill up the disk.
                self._place.clear_staging()
                raise
            files, written = self._place.publish(chunk, self._layout)
            self.files += files
            self.written += written

    def _told(self, rows: int, size: int) -> None:
        self.rows += rows
        self._bytes += size
        if self._progress is not None:
            self._progress(Progress(self.rows, self._bytes, self._todo.bytes))


def engine_for(asked: str | None, format: str) -> str:
    """Return the backend to use. Raises ExtraMissing, NoJava or BadOption if it cannot be used."""
    if asked is None:
        asked = "arrow" if format in FORMATS else "spark"
    check_choice("engine", asked, ENGINES)
    if asked == "spark":
        try:
            from fmq.spark import require_java
        except ImportError as error:
            what = "export by Spark"
            if format not in FORMATS:
                own = ", ".join(FORMATS)
                what = f"format {format!r}, which is one of Spark's (fmq itself writes {own}),"
            raise ExtraMissing(what, str(error.name), "spark") from error
        require_java()
    elif format not in FORMATS:
        raise BadOption(
            f"format {format!r} is one of Spark's, and --engine arrow writes {', '.join(FORMATS)}. "
            "Nothing was written."
        )
    return asked


def make_engine(name: str, shape: Shape, layout: FolderLayout, *, permissive: bool) -> Backend:
    if name == "spark":
        from fmq.export.spark import SparkEngine

        return SparkEngine(shape, layout, permissive=permissive)
    from fmq.export.arrow import ArrowEngine

    return ArrowEngine(shape, layout, permissive=permissive)


@contextmanager
def _machine(out: str) -> Iterator[None]:
    """Turn an OSError in the block into an error of the export."""
    try:
        yield
    except FmqError:
        raise
    except OSError as error:
        why = f"{out}: {error}"
        if is_full(error):
            raise StorageFull(
                f"{why}. What was exported before is there as it was, and nothing else was added. "
                "Make room and run it again."
            ) from error
        raise ExportFailed(
            f"{why}. What was exported before is there as it was. Put that right and run it again."
        ) from error
