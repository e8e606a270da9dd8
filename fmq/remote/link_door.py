"""The door of an engine in another process. Each call is a request over one connection."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from itertools import count
from typing import Any

from fmq.arguments.names import waits
from fmq.arguments.options import Options
from fmq.assembly.shutdown import forget, remember
from fmq.assembly.stats import Stats
from fmq.basics.clock import Clock
from fmq.basics.message import Body, Message, MessagePlace, Receipt
from fmq.codecs import Codec
from fmq.consume.claims.membership import Joining
from fmq.copies import Backup, Progress, back_up
from fmq.errors import BackupRefused, Closed, FmqError, Forked, Locked
from fmq.faces.producers import Producing, ProducingDoor
from fmq.faces.table import GROUP_CHANGES
from fmq.feedback.service import Feedback
from fmq.posix import RealDisk
from fmq.remote.link import Link
from fmq.remote.remote_claims import Membership
from fmq.remote.remote_consumer import RemoteConsumer, RemoteMember
from fmq.remote.remote_manager import RemoteManager
from fmq.remote.remote_questions import RemoteDecisions, RemoteQuestions
from fmq.remote.remote_topics import RemoteTopics
from fmq.remote.wires import Wire
from fmq.store.bytes.kinds import Run
from fmq.store.reading.batch import Batch
from fmq.tx.commands.due import check_due
from fmq.tx.commands.ids import DRAWN_BYTES
from fmq.tx.commands.router import Router
from fmq.tx.commands.sender import SendArguments, Sender
from fmq.wire.batches import decode_batch
from fmq.wire.frames import Op
from fmq.wire.processes import new_member
from fmq.wire.sends import decode_sent, encode_recall, encode_send
from fmq.wire.values import decode_places, encode_values

HANDLES = 1 << 16
UNIX, TCP = "unix:", "tcp://"
CHANGES_QUEUES = "add_queues", "delete_topic", "set_codec"
MOVES_DEAD_LETTERS = "replay_dead", "purge_dead"


class LinkDoor(ProducingDoor):
    """An engine of another process. Safe for threads."""

    def __init__(
        self,
        where: str,
        dial: Callable[[], Wire],
        draw: Callable[[int], bytes],
        clock: Clock,
        retry_for: float,
        explain: Callable[[], FmqError | None] = lambda: None,
        *,
        background: bool = True,
        token: bytes | None = None,
        follows: bool = False,
    ) -> None:
        """`dial` makes a connection or raises OSError, and `draw` returns random bytes. `explain`
        returns the reason if there is no connection, if it knows one. Without `background` no
        thread asks checkers. `token` is shown to the engine process. With `follows`, an engine that
        has failed has a successor, as that of a home.
        """
        self._where = where
        self._draw = draw
        self.clock = clock
        self.codecs: dict[str, Codec[Any]] = {}
        self._members: dict[int, Membership] = {}  # the members of this client, by handle
        self._handles = count(1)
        self.topics = RemoteTopics(clock)
        joined = self._joined
        what_for = where, dial, draw, clock, retry_for, joined, explain, token
        self.link = link = Link(*what_for, follows=follows)
        link.connect()
        self.check = self.check_readable = link.check
        self.router = router = Router(self.topics, self._queues_of, lambda _: True)
        self.sender = Sender(router, link.hello.options)
        self.manager = RemoteManager(link, router, clock, draw(DRAWN_BYTES))
        questions, hello = RemoteQuestions(link, clock), link.hello
        what = questions, RemoteDecisions(link), hello.options, hello.store
        self.feedback = Feedback(*what, lambda: None)
        deciding = self.manager, self.feedback, questions, hello.options, clock
        self._producing = Producing(self, *deciding, background=background)
        remember(self)

    def _joined(self) -> list[tuple[int, bytes]]:
        self.topics.forget()  # a new process may have other options
        return [(handle, member.said()) for handle, member in [*self._members.items()]]

    def _queues_of(self, topic: str) -> int:
        queues: int = self.link.call("queues_of", topic)
        self.topics.note(topic, queues)
        return queues

    # --- calls by name --------------------------------------------------------------------------

    def look(self, name: str, *args: Any) -> Any:
        """Have the engine process carry out the call `name`, one of LOOKS. Return its result."""
        return self.link.call(name, *args)

    def change(self, name: str, *args: Any, **named: Any) -> Any:
        """Have the engine process carry out the change `name`. Return its result."""
        if name in GROUP_CHANGES:
            self.link.change(name, *args)
            if name in CHANGES_QUEUES:
                self.topics.forget()
            return None
        if name == "recall":
            return self.link.write(Op.RECALL, encode_recall, *args) == b"\x01"
        if name in MOVES_DEAD_LETTERS:
            return self._move_dead(name, *args)
        return self.link.call(name, *args, **named)

    def _move_dead(self, name: str, group: str, numbers: list[int] | None, *rest: Any) -> int:
        """Move dead letters, and return how many. The call is repeated if its first answer is lost.
        So a separate call first checks that the letters exist. After that, letters that are gone
        count as moved.
        """
        if numbers is not None:
            self.link.call("check_dead", group, numbers)
        done: int = self.link.call(name, group, numbers, *rest, or_gone=True)
        return done if numbers is None else len(numbers)

    def run(self, steps: Callable[..., Any], *args: Any) -> Any:
        """Return what `steps` returns, a function that makes several looks."""
        return steps(self, *args)

    # --- sending and reading --------------------------------------------------------------------

    def send(
        self,
        topic: str,
        body: Body,
        how: SendArguments,
        delay: float | None,
        deliver_at: datetime | None,
        sync: bool | None,
    ) -> Receipt:
        """Append one message."""
        self.link.check()
        timing = check_due(delay, deliver_at, self.clock.time_us(), relative=True)
        return self._send(self.sender.one(topic, body, *how, timing), sync)[0]

    def send_many(
        self,
        topic: str,
        bodies: Iterable[Body | Message],
        queue: int | None,
        producer: str | None,
        delay: float | None,
        deliver_at: datetime | None,
        sync: bool | None,
    ) -> list[Receipt]:
        """Append messages, all or none of them."""
        self.link.check()
        timing = check_due(delay, deliver_at, self.clock.time_us(), relative=True)
        runs = self.sender.many(topic, bodies, queue, producer, timing)
        return self._send(runs, sync)

    def _send(self, runs: list[Run], sync: bool | None) -> list[Receipt]:
        if sync is not None:
            waits(sync, by_default=True)  # raises TypeError for a wrong `sync`
        if not runs:
            return []
        return decode_sent(runs[0].topic, self.link.write(Op.SEND, encode_send, sync, runs))

    def read_batch(
        self, topic: str, queue: int, offset: int, limit: int, timeout: float
    ) -> Batch | None:
        """Return messages of a queue, after waiting up to `timeout` seconds for the first one."""
        said = encode_values([topic, queue, offset, limit, timeout])
        answer = self.link.ask(Op.READ, said, patience=timeout)
        return decode_batch(answer) if answer else None

    def wait(self, places: Sequence[MessagePlace], timeout: float) -> list[MessagePlace]:
        """Return the places whose queues have messages, after waiting up to `timeout` seconds for
        the first one.
        """
        said = encode_values([[[*each] for each in places], timeout])
        return decode_places(self.link.ask(Op.WAIT, said, patience=timeout))

    # --- transactions and consumers -------------------------------------------------------------

    new_member = staticmethod(new_member)

    def consumer(self, asked: Joining) -> RemoteConsumer:
        """Return the consumer that `asked` describes."""
        return RemoteConsumer(self.member(asked))

    def member(self, asked: Joining) -> RemoteMember:
        """Return the member of a group that `asked` describes, for a consumer that others make."""
        self.link.check()
        handle = next(each for each in self._handles if each % HANDLES not in self._members)
        what = self.link, self.manager.keeper, self._members, handle % HANDLES
        return RemoteMember(*what, Membership(asked))

    # --- the engine itself ----------------------------------------------------------------------

    @property
    def path(self) -> str:
        return self.link.hello.path

    @property
    def options(self) -> Options:
        return self.link.hello.options

    def stats(self) -> Stats:
        """Return a snapshot of the engine in the other process."""
        found: Stats = self.link.call("stats")
        return found

    def backup(self, destination: str, progress: Progress | None) -> Backup:
        """Copy to `destination` what the backup there lacks, in this process and not in the other:
        so the engine is not slowed down, and a path means a place of the caller's.
        """
        if self._where.startswith(TCP):
            raise BackupRefused(
                f"{self._where}: the files of this engine process may be another machine's, so a "
                "client over TCP does not see them. Nothing was changed. Run fmq backup on that "
                "machine, or fmq ship to a place that both see."
            )
        self.change("checkpoint")  # after it, all that is visible now is proven durable
        where = self.path if self._where.startswith(UNIX) else self._where
        store = self.link.hello.store
        return back_up(where, destination, progress, RealDisk(), self.clock, store)

    def stop(self, seconds: float) -> None:
        """Have the engine process end. The caller closes the connection then."""
        if not self.link.call("stop", seconds):
            raise Locked(self._where, "the process that serves it", ends_itself=True)

    def close(self) -> None:
        """Close the connection. Messages that its consumers hold are redelivered."""
        again = "fmq.connect() connects again"
        self.link.close(Closed(f"{self._where}: the engine is closed; {again}"))
        forget(self)
        self._producing.stop()

    def forked(self) -> None:
        """Go on as another client, in the child of a fork. Consumers and open transactions stay
        with the parent.
        """
        self.link.forked()
        self._members.clear()
        self.manager.forked(Forked(self._where), self._draw(DRAWN_BYTES))
        self._producing.begin_anew()

    def process_ends(self) -> None:
        """Do nothing: the engine process makes durable what was acknowledged."""

    def __repr__(self) -> str:
        return f"<RemoteEngine {self._where}>"
