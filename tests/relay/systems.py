"""Systems for relays in memory: a table, which is atomic, lines, which are not, and wrong ones."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from itertools import count

from fmq import Engine
from fmq.relay import RelayBatch, RelayPlace, RelayTakenOver
from fmq.testing.relay import MessageShown

NUMBERS = count()


def send_event(engine: Engine) -> None:
    """Send the message that `check_event` knows."""
    engine.send("t", b"1", key="k", tag="order.paid")


def check_event(said: Mapping[str, str], before: str, engine: Engine) -> None:
    """Check that headers have the attributes of a CloudEvent, with `before` before their names."""
    (sent,) = engine.read("t")
    assert sent.time is not None
    store = engine.feedback.store
    found = {name: text for name, text in said.items() if name.startswith(before)}
    wanted = {
        "specversion": "1.0",
        "id": f"{store}/t/0/0",
        "source": f"urn:fmq:{store}",
        "type": "order.paid",
        "subject": "k",
        "time": sent.time.isoformat().replace("+00:00", "Z"),
    }
    assert found == {before + name: text for name, text in wanted.items()}


def places_of(ids: Iterable[str]) -> list[tuple[str, int, int]]:
    """Return the topic, queue and offset that each `fmq-id` names."""
    found = [each.split("/")[1:] for each in ids]
    return [(topic, int(queue), int(offset)) for topic, queue, offset in found]


class Table:
    """Rows in a database of sqlite3, in the order in which they were inserted."""

    def __init__(self) -> None:
        self.uri = f"file:relay-{next(NUMBERS)}?mode=memory&cache=shared"
        self.kept = sqlite3.connect(self.uri, uri=True)  # the database lives as long as this
        with self.kept:
            self.kept.execute("CREATE TABLE message (topic, queue, offset)")
            self.kept.execute("CREATE TABLE relay (epoch, place)")
            self.kept.execute("INSERT INTO relay VALUES (0, NULL)")

    def target(self) -> TableTarget:
        return TableTarget(self.kept)

    def shown(self) -> Iterator[MessageShown]:
        yield from self.kept.execute("SELECT * FROM message ORDER BY rowid")


class TableTarget:
    """Messages and place in one transaction; the fence is a number that each one states."""

    atomic = True

    def __init__(self, database: sqlite3.Connection) -> None:
        self.database = database
        self.epoch = 0

    def claim(self) -> RelayPlace | None:
        self.fence()
        return self.status()

    def fence(self) -> None:
        with self.database:
            self.database.execute("UPDATE relay SET epoch = epoch + 1")
            ((self.epoch,),) = self.database.execute("SELECT epoch FROM relay")

    def status(self) -> RelayPlace | None:
        ((text,),) = self.database.execute("SELECT place FROM relay")
        return None if text is None else RelayPlace.of_text(text)

    def deliver(self, batch: RelayBatch) -> None:
        with self.database:
            self.check_fence()
            self.insert(batch)
            self.keep(batch.place)

    def check_fence(self) -> None:
        ((epoch,),) = self.database.execute("SELECT epoch FROM relay")
        if epoch != self.epoch:
            raise RelayTakenOver(f"epoch {epoch}")

    def insert(self, batch: RelayBatch) -> None:
        rows = [(each.topic, each.queue, each.offset) for each in batch.messages]
        self.database.executemany("INSERT INTO message VALUES (?, ?, ?)", rows)

    def keep(self, place: RelayPlace) -> None:
        self.database.execute("UPDATE relay SET place = ?", (place.text(),))

    def close(self) -> None:
        pass


class AsksFirst(TableTarget):
    """It asks for the place, and then shuts out the others."""

    def claim(self) -> RelayPlace | None:
        place = self.status()
        self.before_fence()
        self.fence()
        return place

    def before_fence(self) -> None:
        """What happens in between."""


class NoFence(TableTarget):
    """It lets an older relay in."""

    def check_fence(self) -> None:
        pass


class PlaceLater(TableTarget):
    """It keeps the place in a transaction of its own: with the next batch."""

    def __init__(self, database: sqlite3.Connection) -> None:
        super().__init__(database)
        self.last: RelayPlace | None = None

    def keep(self, place: RelayPlace) -> None:
        if self.last is not None:
            super().keep(self.last)
        self.last = place


class OwnMemory(TableTarget):
    """It answers from its memory where it has been asked before."""

    def __init__(self, database: sqlite3.Connection) -> None:
        super().__init__(database)
        self.claimed = False
        self.place: RelayPlace | None = None

    def claim(self) -> RelayPlace | None:
        self.fence()
        if not self.claimed:
            self.claimed, self.place = True, self.status()
        return self.place


class LinesTarget(TableTarget):
    """Two transactions and no fence, and it says so."""

    atomic = False

    def deliver(self, batch: RelayBatch) -> None:
        with self.database:
            self.insert(batch)
        with self.database:
            self.keep(batch.place)


def system_of(kind: type[TableTarget]) -> type[Table]:
    """Return a system with targets of this kind."""

    class System(Table):
        def target(self) -> TableTarget:
            return kind(self.kept)

    return System
