"""Groups, topics and the feedback service, with calls that are awaited. Threads carry them out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from datetime import datetime
from typing import Any

from fmq.consume import group as blocking_group
from fmq.consume import topic as blocking_topic
from fmq.consume.dead_letter import DeadLetters
from fmq.feedback import service as blocking_service
from fmq.feedback.answers import Answer
from fmq.feedback.question import Question
from fmq.filters import Filter
from fmq.results import DeadLetter, GroupInfo, MemberInfo, Outcome, QueueInfo


class AsyncGroup:
    """A group of an engine, made by `engine.group`."""

    def __init__(self, side: Any, group: blocking_group.Group) -> None:
        self._run = side.threads.run
        self._group = group

    @property
    def name(self) -> str:
        return self._group.name

    async def infos(self) -> list[GroupInfo]:
        """Return how far it is in each queue of its topics."""
        found: list[GroupInfo] = await self._run(self._group.infos)
        return found

    async def members(self) -> list[MemberInfo]:
        """Return its members, with the queues that belong to each."""
        found: list[MemberInfo] = await self._run(self._group.members)
        return found

    async def seek(
        self,
        topic: str,
        *,
        queue: int | None = None,
        offset: int | None = None,
        time: datetime | None = None,
        to: str | None = None,
    ) -> None:
        """Go on at `offset`, at the first message that is not older than `time`, or at `to`, which
        is "earliest" or "latest", in one queue of `topic` or in all.
        """
        await self._run(self._group.seek, topic, queue=queue, offset=offset, time=time, to=to)

    async def skip(self, topic: str, queue: int, offset: int, *, count: int = 1) -> None:
        """Pass over `count` messages from `offset` on, such as damaged ones."""
        await self._run(self._group.skip, topic, queue, offset, count=count)

    async def set_filter(self, topic: str, wanted: Filter | None) -> None:
        """Set which messages of `topic` all its members get from now on. None stands for all
        messages.
        """
        await self._run(self._group.set_filter, topic, wanted)

    async def delete(self) -> None:
        """Delete it in all its topics. Nothing is kept for it any more."""
        await self._run(self._group.delete)

    async def explain(self) -> str:
        """Return, as text, who reads what and why."""
        found: str = await self._run(self._group.explain)
        return found

    def __repr__(self) -> str:
        return repr(self._group)


class AsyncTopic:
    """A topic of an engine, made by `engine.topic`."""

    def __init__(self, side: Any, topic: blocking_topic.TopicHandle) -> None:
        self._run = side.threads.run
        self._topic = topic

    @property
    def name(self) -> str:
        return self._topic.name

    async def queues(self) -> list[QueueInfo]:
        """Return its queues, with their offsets at this instant."""
        found: list[QueueInfo] = await self._run(self._topic.queues)
        return found

    async def add_queues(self, count: int) -> None:
        """Add `count` queues, which begin empty."""
        await self._run(self._topic.add_queues, count)

    async def retain(self, seconds: float | None) -> None:
        """Keep its messages for `seconds`. None stands for as long as the options say."""
        await self._run(self._topic.retain, seconds)

    async def delete(self) -> None:
        """Delete it with its messages. If a message makes it again, its offsets begin at 0."""
        await self._run(self._topic.delete)

    def __repr__(self) -> str:
        return repr(self._topic)


class AsyncFeedback:
    """Questions and answers of one engine."""

    def __init__(self, side: Any, feedback: blocking_service.Feedback) -> None:
        self._threads = side.threads
        self._feedback = feedback

    @property
    def store(self) -> str:
        """The id of the directory, which each Question names."""
        return self._feedback.store

    async def ask(
        self,
        producer: str | Iterable[str],
        topics: str | Iterable[str] | None = None,
        *,
        limit: int = 32,
        wait: float = 5.0,
    ) -> list[Question]:
        """Return up to `limit` questions about what `producer` prepared, as soon as one is due.

        The questions of a call that is cancelled are due again when their lease has ended.
        """
        found: list[Question] = await self._threads.long(
            self._feedback.ask, producer, topics, limit=limit, wait=wait
        )
        return found

    async def ask_about(self, tx_id: str) -> list[Question]:
        """Return the question about one transaction, and end the lease of any other call on it."""
        found: list[Question] = await self._threads.run(self._feedback.ask_about, tx_id)
        return found

    async def answer(
        self, question: Question, decision: Answer, *, reason: str = ""
    ) -> Outcome | None:
        """Answer a question; return the outcome if that decides its transaction."""
        found: Outcome | None = await self._threads.run(
            self._feedback.answer, question, decision, reason=reason
        )
        return found

    async def resume(self, tx_id: str) -> None:
        """Make the question about `tx_id` due now, even if it is parked."""
        await self._threads.run(self._feedback.resume, tx_id)


class AsyncDeadLetters:
    """The dead letters of a group, made by `engine.dead_letters`."""

    def __init__(self, side: Any, letters: DeadLetters) -> None:
        self._run = side.threads.run
        self._letters = letters

    @property
    def group(self) -> str:
        return self._letters.group

    async def count(self) -> int:
        """Return how many there are."""
        found: int = await self._run(self._letters.count)
        return found

    async def list(self, *, limit: int = 100, after: int | None = None) -> list[DeadLetter]:
        """Return up to `limit` of them by their numbers, those above `after` only."""
        found: list[DeadLetter] = await self._run(self._letters.list, limit=limit, after=after)
        return found

    async def __aiter__(self) -> AsyncIterator[DeadLetter]:
        """Yield all, read in pages."""
        after = None
        while page := await self.list(limit=1000, after=after):
            for each in page:
                yield each
            after = page[-1].number

    async def get(self, number: int) -> DeadLetter:
        """Return one; raise UnknownDeadLetter if there is none of this number."""
        found: DeadLetter = await self._run(self._letters.get, number)
        return found

    async def replay(self, numbers: int | Iterable[int] | None = None) -> int:
        """Redeliver those with these `numbers`, or all, to this group alone. Return how many."""
        found: int = await self._run(self._letters.replay, numbers)
        return found

    async def purge(
        self,
        numbers: int | Iterable[int] | None = None,
        *,
        before: datetime | None = None,
        all: bool = False,
    ) -> int:
        """Drop those with these `numbers`, or that died `before` a time, or all of them."""
        found: int = await self._run(self._letters.purge, numbers, before=before, all=all)
        return found

    def __repr__(self) -> str:
        return repr(self._letters)
